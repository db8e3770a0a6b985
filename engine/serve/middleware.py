"""What every request passes through, outermost first: identity, gate, limits.

All of it is plain ASGI. (A middleware that buffers through a queue of its own would hide the
client's disconnect from the handler.)
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentkv.engine.serve.auth import OPEN_ROUTES, Hosts, Keys, presented_key
from agentkv.engine.serve.config import ServeConfig
from agentkv.engine.serve.errors import ApiError, internal
from agentkv.engine.serve.wire import error_reply

log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first value of a header, whose name is given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def clean_request_id(value: str | None) -> str | None:
    """`value` if it is fit to be a request id."""
    return value if value is not None and _REQUEST_ID.fullmatch(value) else None


class Identify:
    """Gives each request an id, echoes it, and turns bugs into a 500 that says nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = header(scope, b"x-request-id")
        request_id = clean_request_id(
            given.decode("latin-1") if given else None
        ) or secrets.token_hex(16)
        scope.setdefault("state", {})
        scope["state"]["request_id"] = request_id
        scope["state"]["tenant"] = None
        started = False

        async def put(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            await self.app(scope, receive, put)
        except ClientDisconnect:
            log.info("%s: the client left before its request was read", request_id)
        except Exception:
            log.exception("%s: %s %s failed", request_id, scope["method"], scope["path"])
            if not started:
                await error_reply(internal())(scope, receive, put)


class Gate:
    """Host names, origins, and API keys."""

    def __init__(self, app: ASGIApp, config: ServeConfig) -> None:
        self.app = app
        self._hosts = Hosts(config)
        self._keys = Keys(config.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._check(scope) if scope["type"] == "http" else None
        if refusal is not None:
            await error_reply(refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> ApiError | None:
        host = header(scope, b"host")
        if host and not self._hosts.allow_host(host.decode("latin-1")):
            return ApiError(
                403,
                "host_not_allowed",
                "This server answers to loopback names only. Start it with --allowed-hosts NAME to add one.",
            )
        origin = header(scope, b"origin")
        if (
            origin
            and scope["method"] not in _SAFE_METHODS
            and not self._hosts.allow_origin(origin.decode("latin-1"))
        ):
            return ApiError(
                403, "origin_not_allowed", "Requests from pages of other sites are not taken."
            )
        if self._keys and scope["path"] not in OPEN_ROUTES:
            key = presented_key(header(scope, b"authorization"), header(scope, b"x-api-key"))
            tenant = None if key is None else self._keys.match(key)
            if tenant is None:
                said = (
                    "This server needs an API key."
                    if key is None
                    else "The API key is not valid here."
                )
                return ApiError(
                    401,
                    "invalid_api_key",
                    f"{said} Send it as `Authorization: Bearer KEY`.",
                    headers={"www-authenticate": "Bearer"},
                )
            if self._keys.several:
                scope["state"]["tenant"] = tenant
        return None


class Limits:
    """JSON only, uncompressed, of bounded size, within a bounded time."""

    def __init__(self, app: ASGIApp, config: ServeConfig) -> None:
        self.app = app
        self._most = config.max_body
        self._seconds = config.receive_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._check(scope)
        if refusal is not None:
            await error_reply(refusal)(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self._seconds
        size = 0
        complete = False

        async def take() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise ApiError(
                    408, "request_timeout", f"The body did not arrive within {self._seconds:g} s."
                ) from None
            if message["type"] == "http.request":
                # Counted as it arrives: a header can say anything.
                size += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if size > self._most:
                    raise self._too_large()
            return message

        await self.app(scope, take, send)

    def _check(self, scope: Scope) -> ApiError | None:
        length = header(scope, b"content-length") or b""
        has_body = header(scope, b"transfer-encoding") is not None or length.strip(b"0 ") != b""
        if not has_body or scope["method"] in _SAFE_METHODS:
            return None
        encoding = (header(scope, b"content-encoding") or b"identity").strip().lower()
        if encoding != b"identity":
            return ApiError(
                415, "unsupported_encoding", "Compressed bodies are not taken. Send plain JSON."
            )
        kind = (header(scope, b"content-type") or b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            # Also what keeps a form on another site from posting here without a preflight.
            return ApiError(
                415, "unsupported_media_type", "Send JSON with `Content-Type: application/json`."
            )
        if length.isdigit() and int(length[:20]) > self._most:
            return self._too_large()
        return None

    def _too_large(self) -> ApiError:
        return ApiError(413, "request_too_large", f"A body has at most {self._most} bytes.")
