"""A client that goes away takes its work with it, wherever that work is.

Watching for a failed write is not enough: nothing is written while a request waits in the queue or
is in prefill, nor before the end of an unstreamed reply. So the handler runs as a task beside a
watcher of the connection, and is cancelled when the watcher sees the other side hang up. The
cancellation reaches the engine's awaitable, which aborts the request.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)


class CancelOnDisconnect:
    """ASGI middleware. The watch starts when the request's body has been read to its end."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body_read = asyncio.Event()
        gone = asyncio.Event()
        replied = False

        async def take() -> Message:
            if body_read.is_set():
                # Only the watcher may read now, so whoever asks is told when it knows.
                await gone.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
                body_read.set()
            elif not message.get("more_body", False):
                body_read.set()
            return message

        async def put(message: Message) -> None:
            nonlocal replied
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                replied = True
            await send(message)

        async def watch() -> None:
            await body_read.wait()
            while not gone.is_set():
                if (await receive())["type"] == "http.disconnect":
                    gone.set()

        work = asyncio.ensure_future(self.app(scope, take, put))
        watcher = asyncio.create_task(watch())
        try:
            await asyncio.wait({work, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not replied:
                # 499, as it is known in logs: nobody is left to be told.
                log.info("%s %s: the client went away", scope["method"], scope["path"])
                work.cancel()
            await asyncio.wait({work})
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            watcher.cancel()
        if not work.cancelled():
            work.result()
