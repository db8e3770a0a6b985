"""An engine behind HTTP: `agentkv serve`, or another server that speaks the OpenAI protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkv.client import foreign, replies, wire
from agentkv.client.base import CallRequest, ChatDelta, ChatReply, HintAction, Timeouts
from agentkv.client.connections import Connections, failure, give_up, limits, mapped
from agentkv.client.errors import (
    AgentKVError,
    EngineFailed,
    InvalidCall,
    NotSupported,
    PermissionDenied,
    UnknownModel,
)
from agentkv.client.facts import cached_of, report_of
from agentkv.client.foreign import plain_message
from agentkv.client.reader import Reader
from agentkv.client.replies import Reporter
from agentkv.client.retry import Attempts
from agentkv.client.server import DIALECTS, Dialect, Server, known, read_models, split_url
from agentkv.client.split import about, encoding
from agentkv.report.report import CacheReport

if TYPE_CHECKING:
    import httpx


class HttpClient:
    """Calls `base_url` (with or without a trailing `/v1`).

    `dialect`: `agentkv` for `agentkv serve`, `openai` for every other server (vLLM, SGLang,
    llama.cpp, OpenAI itself, ...), `auto` to ask the server's model list once. Another server is
    sent OpenAI's fields only, without the marks of a layout; its report has the server's totals,
    segments that are estimated, and no reason. `prompt_cache_key` sends the session under that
    name (default: to OpenAI only). `extra_body` is added to every request as it is, for a server's
    own fields.

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
        dialect: Dialect = "auto",
        prompt_cache_key: bool | None = None,
        extra_body: Mapping[str, Any] | None = None,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"dialect must be one of {', '.join(DIALECTS)}, got {dialect!r}.")
        self._root, self._api = split_url(base_url)
        self._known = known(dialect, self._root)
        self._cache_key = prompt_cache_key
        self._extra = dict(extra_body or {})
        self._reports = False
        self._key = api_key
        self._model = model
        self._retries = max_retries
        self._connections = Connections(http_client, http_async_client)
        self._cards: Server | None = None

    def __repr__(self) -> str:
        return f"HttpClient({self._root!r})"

    # -- calls -----------------------------------------------------------------------------------

    def send(self, request: CallRequest) -> ChatReply:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            try:
                server = self._known or self._found(
                    self._connections.sync().get(**self._look(attempts))
                )
                response = self._connections.sync().post(**self._post(server, request, attempts))
                return self._reply(server, request, response)
            except (httpx.HTTPError, AgentKVError) as error:
                found = mapped(error, self._root, "total", request.timeouts)
                wait = attempts.wait_after(found)
                if wait is None:
                    give_up(found, error)
            time.sleep(wait)

    async def asend(self, request: CallRequest) -> ChatReply:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            try:
                server = self._known or self._found(
                    await self._connections.for_loop().get(**self._look(attempts))
                )
                response = await self._connections.for_loop().post(
                    **self._post(server, request, attempts)
                )
                return self._reply(server, request, response)
            except (httpx.HTTPError, AgentKVError) as error:
                found = mapped(error, self._root, "total", request.timeouts)
                wait = attempts.wait_after(found)
                if wait is None:
                    give_up(found, error)
            await asyncio.sleep(wait)

    def stream(self, request: CallRequest) -> Iterator[ChatDelta]:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            reader = Reader(request.timeouts, attempts)
            try:
                server = self._known or self._found(
                    self._connections.sync().get(**self._look(attempts))
                )
                reader.report = self._reporter(server, request)
                reader.prefill = _only_prefill(server, request)
                with self._connections.sync().stream(
                    **self._post(server, request, attempts, reader)
                ) as reply:
                    if reply.status_code != 200:
                        reply.read()
                        raise failure(self._root, reply)
                    for line in reply.iter_lines():
                        yield from reader.feed(line)
                        if reader.done:
                            break
                yield reader.end()
                return
            except (httpx.HTTPError, AgentKVError) as error:
                found = mapped(error, self._root, reader.phase, request.timeouts)
                wait = attempts.wait_after(found) if not reader.started else None
                if wait is None:
                    give_up(found, error)
            time.sleep(wait)

    async def astream(self, request: CallRequest) -> AsyncIterator[ChatDelta]:
        import httpx

        attempts = Attempts(self._retries, request.timeouts)
        while True:
            reader = Reader(request.timeouts, attempts)
            try:
                server = self._known or self._found(
                    await self._connections.for_loop().get(**self._look(attempts))
                )
                reader.report = self._reporter(server, request)
                reader.prefill = _only_prefill(server, request)
                async with self._connections.for_loop().stream(
                    **self._post(server, request, attempts, reader)
                ) as reply:
                    if reply.status_code != 200:
                        await reply.aread()
                        raise failure(self._root, reply)
                    async for line in reply.aiter_lines():
                        for delta in reader.feed(line):
                            yield delta
                        if reader.done:
                            break
                yield reader.end()
                return
            except (httpx.HTTPError, AgentKVError) as error:
                found = mapped(error, self._root, reader.phase, request.timeouts)
                wait = attempts.wait_after(found) if not reader.started else None
                if wait is None:
                    give_up(found, error)
            await asyncio.sleep(wait)

    # -- looking ---------------------------------------------------------------------------------

    def count(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Tokens of the prompt; an estimate where the server is not ours and cannot count."""
        server = self._server()
        if server.ours:
            return int(self._ask("POST", "/tokenize", _asking(messages, tools))["count"])
        plain = [plain_message(m) for m in messages]
        found = self._tokenize(server, _asking(plain, tools)).get("count")
        return found if isinstance(found, int) else about(messages, tools)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. From another server that has no `/tokenize`: OpenAI's public
        tokenizer, where it is on this machine; else raises `NotSupported`."""
        server = self._server()
        body: dict[str, Any] = {"prompt": text, "parse_special": False}
        if server.ours:
            return [int(i) for i in self._ask("POST", "/tokenize", body)["tokens"]]
        ids = self._tokenize(server, {**body, "content": text, "add_special_tokens": False}).get(
            "tokens"
        )
        if isinstance(ids, Sequence) and all(isinstance(i, int) for i in ids) and (ids or not text):
            return list(ids)
        local = encoding()
        if local is None:
            raise NotSupported(
                f"{self._root} has no tokenizer to ask, and OpenAI's is not on this machine."
            )
        return local.encode_ordinary(text)

    def hint(
        self, session: str, action: HintAction, *, ttl: float, salt: str | None = None
    ) -> int | None:
        server = self._known
        if server is None or not server.ours:
            return None  # nobody knows the session before the first call
        body: dict[str, Any] = {"session": session, "action": action}
        if action == "pause":
            body["ttl"] = ttl
        if salt is not None:
            body["cache_salt"] = salt
        return int(self._ask("POST", "/agentkv/cache/hint", body)["tokens"])

    def context_window(self) -> int | None:
        if self._cards is None:
            self._cards = self._server(look=True)
        return self._cards.window(self._model)

    def _server(self, *, look: bool = False) -> Server:
        """What is behind the URL; `look` asks for its models also where the dialect is known."""
        import httpx

        if self._known is not None and not look:
            return self._known
        timeouts = Timeouts()
        try:
            response = self._connections.sync().get(**self._look(Attempts(0, timeouts)))
        except httpx.HTTPError as error:
            give_up(mapped(error, self._root, "total", timeouts), error)
        return self._found(response)

    def _tokenize(self, server: Server, body: dict[str, Any]) -> dict[str, Any]:
        """What another server's `/tokenize` says; nothing where it has none."""
        if server.openai:
            return {}
        try:
            return self._ask("POST", "/tokenize", {"model": self._model, **body})
        except (InvalidCall, UnknownModel, EngineFailed, PermissionDenied):
            return {}

    def _ask(
        self, method: str, route: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        import httpx

        timeouts = Timeouts()
        try:
            sent = {"content-type": "application/json"} if body is not None else {}
            response = self._connections.sync().request(
                method,
                self._root + route,
                content=None if body is None else wire.encoded(body),
                headers={**sent, **self._headers(None)},
                timeout=limits(timeouts, read=timeouts.first_token),
            )
            if response.status_code != 200:
                raise failure(self._root, response)
            data = response.json()
        except httpx.HTTPError as error:
            give_up(mapped(error, self._root, "total", timeouts), error)
        except ValueError as error:
            raise EngineFailed(f"{self._root}{route} did not answer with JSON.") from error
        return data if isinstance(data, dict) else {"data": data}

    def close(self) -> None:
        self._connections.close()

    async def aclose(self) -> None:
        await self._connections.aclose()

    # -- requests and replies --------------------------------------------------------------------

    def _look(self, attempts: Attempts) -> dict[str, Any]:
        """The question that tells whose server it is, as arguments for httpx."""
        return {
            "url": f"{self._api}/models",
            "headers": self._headers(None),
            "timeout": limits(attempts.timeouts, read=_shortest(attempts)),
        }

    def _found(self, response: httpx.Response) -> Server:
        """The server that answered `_look`. Kept, unless its answer leaves it open."""
        if response.status_code == 429 or response.status_code >= 500:
            raise failure(self._root, response)
        try:
            data = response.json()
        except ValueError:
            data = None
        server, certain = read_models(response.status_code, data)
        if certain and self._known is None:
            self._known = self._cards = server
        return server

    def _post(
        self,
        server: Server,
        request: CallRequest,
        attempts: Attempts,
        reader: Reader | None = None,
    ) -> dict[str, Any]:
        """A call as arguments for httpx; streamed where it has a reader."""
        read = attempts.left if reader is None else reader.silence
        stream = reader is not None
        if server.ours:
            body = {**wire.body(request, self._model, stream=stream), **self._extra}
        else:
            body = foreign.body(
                request,
                self._model,
                stream=stream,
                server=server,
                cache_key=self._cache_key,
                extra=self._extra,
            )
        out = {
            "url": f"{self._api}{wire.path(request)}",
            "content": wire.encoded(body),
            "headers": {"content-type": "application/json", **self._headers(request)},
            "timeout": limits(request.timeouts, read=read),
        }
        return out if reader is None else {"method": "POST", **out}

    def _reporter(self, server: Server, request: CallRequest) -> Reporter:
        """Makes the report of a reply."""
        if server.ours:
            return replies.own_report

        def report(data: Mapping[str, Any]) -> CacheReport:
            sglang = server.owner == "sglang"
            if sglang and cached_of(data) is not None:
                self._reports = True
            return report_of(request, data, absent_is_zero=sglang and self._reports)

        return report

    def _headers(self, request: CallRequest | None) -> dict[str, str]:
        out = {"accept": "application/json, text/event-stream"}
        if self._key:
            out["authorization"] = f"Bearer {self._key}"
        if request is not None and request.request_id:
            out["x-request-id"] = request.request_id
        return out

    def _reply(self, server: Server, request: CallRequest, response: httpx.Response) -> ChatReply:
        if response.status_code != 200:
            raise failure(self._root, response)
        try:
            reply = replies.reply(response.json(), self._reporter(server, request))
        except (ValueError, TypeError, AttributeError) as error:
            raise EngineFailed(f"{self._root} answered with something else: {error}") from error
        return replies.prefilled(reply) if _only_prefill(server, request) else reply


def _asking(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {"messages": list(messages), **({"tools": list(tools)} if tools else {})}


def _shortest(attempts: Attempts) -> float | None:
    """The longest wait for an answer that needs no model."""
    waits = [w for w in (attempts.timeouts.first_token, attempts.left) if w is not None]
    return min(waits, default=None)


def _only_prefill(server: Server, request: CallRequest) -> bool:
    return not server.ours and request.params.max_tokens == 0
