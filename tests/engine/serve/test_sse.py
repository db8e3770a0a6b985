"""The event stream by itself: order, pings, failures, closing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agentkv.engine.errors import EngineError
from agentkv.engine.serve import sse


class Wire:
    """Collects what an ASGI response sends."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    async def receive(self) -> Any:
        raise AssertionError("a stream has nothing to read")

    @property
    def parts(self) -> list[bytes]:
        return [m["body"] for m in self.messages if m["type"] == "http.response.body"]


async def play(body: AsyncGenerator[bytes, None], ping: float = 60.0) -> tuple[Wire, list[str]]:
    wire, closed = Wire(), list[str]()

    async def close() -> None:
        closed.append("closed")

    stream = sse.EventStream(body, headers={"x-a": "1"}, ping=ping, close=close)
    await stream({"type": "http"}, wire.receive, wire.send)
    return wire, closed


async def test_headers_and_order() -> None:
    async def body() -> AsyncGenerator[bytes, None]:
        yield sse.event({"a": "\u2028"})
        yield sse.DONE

    wire, closed = await play(body())
    headers = dict(wire.messages[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"x-a"] == b"1"
    assert b"content-length" not in headers
    assert wire.parts == [b'data: {"a":"\\u2028"}\n\n', b"data: [DONE]\n\n", b""]
    assert [m.get("more_body") for m in wire.messages[1:]] == [True, True, False]
    assert closed == ["closed"]


async def test_silence_is_filled_with_comments() -> None:
    async def body() -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(0.11)
        yield sse.event(1)
        await asyncio.sleep(0.11)
        yield sse.DONE

    wire, _ = await play(body(), ping=0.03)
    assert wire.parts.count(sse.PING) >= 4
    assert wire.parts[0] == sse.PING
    assert wire.parts[-2:] == [sse.DONE, b""]
    assert sse.event(1) in wire.parts


@pytest.mark.parametrize("error", [EngineError("at 0x7f in /srv"), RuntimeError("secret")])
async def test_a_failure_becomes_an_event_and_the_end(error: Exception) -> None:
    async def body() -> AsyncGenerator[bytes, None]:
        yield sse.event({"ok": 1})
        raise error

    wire, closed = await play(body())
    last = json.loads(wire.parts[1].removeprefix(b"data: "))
    assert last["error"]["code"] == "internal_error"
    assert "0x7f" not in str(last) and "secret" not in str(last)
    assert sse.DONE not in wire.parts
    assert wire.messages[-1]["more_body"] is False
    assert closed == ["closed"]


async def test_cancelling_closes_the_body_and_the_job() -> None:
    ended: list[str] = []
    started = asyncio.Event()

    async def body() -> AsyncGenerator[bytes, None]:
        try:
            started.set()
            await asyncio.sleep(60)
            yield b""
        finally:
            ended.append("body")

    async def close() -> None:
        ended.append("job")

    wire = Wire()
    stream = sse.EventStream(body(), headers={}, ping=60, close=close)
    task = asyncio.create_task(stream({"type": "http"}, wire.receive, wire.send))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["body", "job"]
