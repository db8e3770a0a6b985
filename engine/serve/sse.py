"""Server-sent events: one line of JSON an event, comments while nothing happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agentkv.engine.serve.errors import as_api_error
from agentkv.engine.serve.wire import encode

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
log = logging.getLogger(__name__)


def event(value: Any) -> bytes:
    """`value` as one event."""
    return b"data: " + encode(value) + b"\n\n"


class EventStream(Response):
    """Sends what `body` yields, and a comment whenever nothing was sent for `ping` seconds.

    Comments keep the client's read timeout from running out during a long prefill. A failure in
    the middle of the stream becomes one `error` event, without `[DONE]`, and the end: the status
    line has long been sent. `close` runs exactly once, however the stream ends, and even when
    `body` was never started.
    """

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str],
        ping: float,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers},
        )
        del self.headers["content-length"]
        self._body = body
        self._ping = ping
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()

        async def write(data: bytes) -> None:
            nonlocal last
            last = loop.time()
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async def keep_alive() -> None:
            while True:
                rest = last + self._ping - loop.time()
                if rest > 0:
                    await asyncio.sleep(rest)
                else:
                    await write(PING)

        pings: asyncio.Task[None] | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            pings = asyncio.create_task(keep_alive())
            try:
                async for data in self._body:
                    await write(data)
            except Exception as error:
                reply = as_api_error(error)
                if reply.status >= 500:
                    log.error("a stream failed", exc_info=error)
                await write(event(reply.body()))
            await _stop(pings)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if pings is not None:
                await _stop(pings)
            await self._body.aclose()
            await self._close()


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, OSError):
        await task
