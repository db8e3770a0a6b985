"""The limits of a streamed call in process: to its first token, between tokens, and in all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from agentkv.client.base import Timeouts
from agentkv.client.errors import CallTimeout
from agentkv.engine.stream import Stream
from agentkv.engine.types import StreamEvent


class Clock:
    """Which limit runs out next, and when."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._started = self._last = time.monotonic()
        self._phase = "first_token"

    def tick(self, event: StreamEvent) -> None:
        """Something came. The first event of a call tells of its admission, and is no token."""
        if event.index >= 0:
            self._last = time.monotonic()
            self._phase = "chunk"

    def next(self) -> tuple[float | None, str]:
        """Seconds that are left (None: no limit), and the name of the limit."""
        now, t = time.monotonic(), self._timeouts
        own = t.first_token if self._phase == "first_token" else t.chunk
        waits = [(self._last + own - now, self._phase)] if own is not None else []
        if t.total is not None:
            waits.append((self._started + t.total - now, "total"))
        if not waits:
            return None, "total"
        left, phase = min(waits)
        return max(0.0, left), phase

    def error(self, phase: str) -> CallTimeout:
        return CallTimeout(phase, getattr(self._timeouts, phase))


def timed(events: Stream, timeouts: Timeouts) -> Iterator[StreamEvent]:
    """`events`, or `CallTimeout` where the next one does not come in time."""
    clock = Clock(timeouts)
    while True:
        left, phase = clock.next()
        try:
            event = events.next(left)
        except StopIteration:
            return
        except TimeoutError:
            raise clock.error(phase) from None
        clock.tick(event)
        yield event


async def atimed(
    events: AsyncIterator[StreamEvent], timeouts: Timeouts
) -> AsyncIterator[StreamEvent]:
    """`events`, or `CallTimeout` where the next one does not come in time."""
    clock = Clock(timeouts)
    while True:
        left, phase = clock.next()
        try:
            async with asyncio.timeout(left):
                event = await anext(events)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise clock.error(phase) from None
        clock.tick(event)
        yield event
