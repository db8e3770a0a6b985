"""The limits of a streamed call in process: to its first token, between tokens, and in all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from agentkv.client.base import Timeouts
from agentkv.client.errors import CallTimeout
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


class Alarm:
    """Calls `abort` from a thread of its own when a limit runs out while the caller waits."""

    def __init__(self, timeouts: Timeouts, abort: Callable[[], object]) -> None:
        self._clock = Clock(timeouts)
        self._abort = abort
        self._changed = threading.Condition()
        self._over = False
        self._fired: str | None = None
        self._thread: threading.Thread | None = None

    def tick(self, event: StreamEvent) -> None:
        """Something came. Raises `CallTimeout` when it came too late."""
        self.check()
        with self._changed:
            self._clock.tick(event)

    def check(self) -> None:
        """Raise `CallTimeout` when a limit ran out."""
        with self._changed:
            if self._fired is not None:
                raise self._clock.error(self._fired)

    def _watch(self) -> None:
        with self._changed:
            while not self._over:
                left, phase = self._clock.next()
                if left is not None and left <= 0:
                    self._fired = phase
                    break
                self._changed.wait(left)
        if self._fired is not None:
            self._abort()

    def __enter__(self) -> Self:
        if self._clock.next()[0] is not None:
            self._thread = threading.Thread(target=self._watch, name="agentkv-alarm", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()


async def timed(
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
