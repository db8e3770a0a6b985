"""An engine behind HTTP: `agentkv serve`, or another server that speaks the OpenAI protocol."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkv.client import wire
from agentkv.client.base import CallRequest, ChatDelta, ChatReply, Timeouts
from agentkv.client.errors import (
    AgentKVError,
    CallTimeout,
    EngineFailed,
    EngineUnavailable,
    from_status,
)
from agentkv.client.reader import Reader
from agentkv.client.retry import Attempts, parse_retry_after

if TYPE_CHECKING:
    import httpx


class HttpClient:
    """Calls `base_url` (with or without a trailing `/v1`).

    `http_client` and `http_async_client` replace the clients that are made at the first call; such
    a client is the caller's to close. Requests are sent again after connection failures, 429 and
    5xx, at most `max_retries` times and only while no token has come.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        max_retries: int = 2,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
    ) -> None:
        root = base_url.rstrip("/")
        if not root.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://, got {base_url!r}.")
        self._root = root.removesuffix("/v1")
        self._key = api_key
        self._model = model
        self._retries = max_retries
        self._lock = threading.Lock()
        self._own: httpx.Client | None = None
        self._given = http_client
        self._given_async = http_async_client
        # A connection pool belongs to the event loop that made it.
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]
        self._by_loop = weakref.WeakKeyDictionary()
        self._window: int | None = None

    def __repr__(self) -> str:
        return f"HttpClient({self._root!r})"

    # -- calls -----------------------------------------------------------------------------------

    def send(self, request: CallRequest) -> ChatReply:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            limits = _limits(request.timeouts, read=attempts.left)
            try:
                response = self._sync().post(
                    self._url(request),
                    json=wire.body(request, self._model, stream=False),
                    headers=self._headers(request),
                    timeout=limits,
                )
                return self._reply(response)
            except (httpx.HTTPError, AgentKVError) as error:
                mapped = self._mapped(error, "total", request.timeouts)
                wait = attempts.wait_after(mapped)
                if wait is None:
                    raise mapped from error
            time.sleep(wait)

    async def asend(self, request: CallRequest) -> ChatReply:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            limits = _limits(request.timeouts, read=attempts.left)
            try:
                response = await self._async().post(
                    self._url(request),
                    json=wire.body(request, self._model, stream=False),
                    headers=self._headers(request),
                    timeout=limits,
                )
                return self._reply(response)
            except (httpx.HTTPError, AgentKVError) as error:
                mapped = self._mapped(error, "total", request.timeouts)
                wait = attempts.wait_after(mapped)
                if wait is None:
                    raise mapped from error
            await asyncio.sleep(wait)

    def stream(self, request: CallRequest) -> Iterator[ChatDelta]:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            reader = Reader(request.timeouts, attempts)
            try:
                with self._sync().stream(
                    "POST",
                    self._url(request),
                    json=wire.body(request, self._model, stream=True),
                    headers=self._headers(request),
                    timeout=_limits(request.timeouts, read=reader.silence),
                ) as response:
                    if response.status_code != 200:
                        response.read()
                        raise self._failure(response)
                    for line in response.iter_lines():
                        yield from reader.feed(line)
                        if reader.done:
                            break
                yield reader.end()
                return
            except (httpx.HTTPError, AgentKVError) as error:
                mapped = self._mapped(error, reader.phase, request.timeouts)
                wait = attempts.wait_after(mapped) if not reader.started else None
                if wait is None:
                    raise mapped from error
            time.sleep(wait)

    async def astream(self, request: CallRequest) -> AsyncIterator[ChatDelta]:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            reader = Reader(request.timeouts, attempts)
            try:
                async with self._async().stream(
                    "POST",
                    self._url(request),
                    json=wire.body(request, self._model, stream=True),
                    headers=self._headers(request),
                    timeout=_limits(request.timeouts, read=reader.silence),
                ) as response:
                    if response.status_code != 200:
                        await response.aread()
                        raise self._failure(response)
                    async for line in response.aiter_lines():
                        for delta in reader.feed(line):
                            yield delta
                        if reader.done:
                            break
                yield reader.end()
                return
            except (httpx.HTTPError, AgentKVError) as error:
                mapped = self._mapped(error, reader.phase, request.timeouts)
                wait = attempts.wait_after(mapped) if not reader.started else None
                if wait is None:
                    raise mapped from error
            await asyncio.sleep(wait)

    # -- looking ---------------------------------------------------------------------------------

    def count(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        body: dict[str, Any] = {"messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        return int(self._ask("POST", "/tokenize", body)["count"])

    def encode(self, text: str) -> list[int]:
        body = {"prompt": text, "parse_special": False}
        return [int(i) for i in self._ask("POST", "/tokenize", body)["tokens"]]

    def context_window(self) -> int | None:
        if self._window is None:
            cards = self._ask("GET", "/v1/models").get("data") or ()
            named = [c for c in cards if c.get("id") == self._model] or cards
            for card in named:
                found = card.get("max_model_len") or card.get("context_length")
                if isinstance(found, int):
                    self._window = found
                    break
        return self._window

    def _ask(
        self, method: str, route: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        import httpx

        timeouts = Timeouts()
        try:
            response = self._sync().request(
                method,
                self._root + route,
                json=body,
                headers=self._headers(None),
                timeout=_limits(timeouts, read=timeouts.first_token),
            )
            if response.status_code != 200:
                raise self._failure(response)
            data = response.json()
        except httpx.HTTPError as error:
            raise self._mapped(error, "total", timeouts) from error
        except ValueError as error:
            raise EngineFailed(f"{self._root}{route} did not answer with JSON.") from error
        return data if isinstance(data, dict) else {"data": data}

    def close(self) -> None:
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()

    async def aclose(self) -> None:
        self.close()
        mine = self._by_loop.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.aclose()

    # -- requests and replies --------------------------------------------------------------------

    def _sync(self) -> httpx.Client:
        if self._given is not None:
            return self._given
        with self._lock:
            if self._own is None:
                import httpx

                self._own = httpx.Client()
            return self._own

    def _async(self) -> httpx.AsyncClient:
        if self._given_async is not None:
            return self._given_async
        import httpx

        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._by_loop.get(loop)
            if client is None:
                client = self._by_loop[loop] = httpx.AsyncClient()
            return client

    def _url(self, request: CallRequest) -> str:
        return f"{self._root}/v1{wire.path(request)}"

    def _headers(self, request: CallRequest | None) -> dict[str, str]:
        out = {"accept": "application/json, text/event-stream"}
        if self._key:
            out["authorization"] = f"Bearer {self._key}"
        if request is not None and request.request_id:
            out["x-request-id"] = request.request_id
        return out

    def _reply(self, response: httpx.Response) -> ChatReply:
        if response.status_code != 200:
            raise self._failure(response)
        try:
            return wire.reply(response.json())
        except (ValueError, TypeError, AttributeError) as error:
            raise EngineFailed(f"{self._root} answered with something else: {error}") from error

    def _failure(self, response: httpx.Response) -> AgentKVError:
        try:
            body = response.json()
        except ValueError:
            body = None
        wait = parse_retry_after(response.headers.get("retry-after"))
        return from_status(response.status_code, body, retry_after=wait, url=self._root)

    def _mapped(
        self, error: httpx.HTTPError | AgentKVError, phase: str, timeouts: Timeouts
    ) -> AgentKVError:
        import httpx

        if isinstance(error, AgentKVError):
            return error
        if isinstance(error, (httpx.ConnectTimeout, httpx.PoolTimeout)):
            return CallTimeout("connect", timeouts.connect)
        if isinstance(error, httpx.TimeoutException):
            return CallTimeout(phase, getattr(timeouts, phase))
        what = "cannot be reached" if isinstance(error, httpx.ConnectError) else "went away"
        detail = str(error) or type(error).__name__
        return EngineUnavailable(
            f"{self._root} {what}: {detail}. Is `agentkv serve` running there?"
        )


def _limits(timeouts: Timeouts, *, read: float | None) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(connect=timeouts.connect, read=read, write=read, pool=timeouts.connect)
