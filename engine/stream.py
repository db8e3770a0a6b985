"""What a caller iterates over: events of one call, and its abort when the caller walks away."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from agentkv.engine.errors import EngineError
from agentkv.engine.types import RequestOutput, StreamEvent


class Stream:
    """Iterator over the `StreamEvent`s of one call; `close` (or garbage collection) aborts it."""

    def __init__(
        self, request_id: str, events: queue.SimpleQueue[Any], abort: Callable[[str], bool]
    ) -> None:
        self.request_id = request_id
        self._events = events
        self._abort = abort
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        return self._next(None)

    def next(self, timeout: float | None = None) -> StreamEvent:
        """The next event. `TimeoutError` after `timeout` seconds, and the call is aborted;
        `StopIteration` after the last event."""
        return self._next(None if timeout is None else time.monotonic() + timeout)

    def result(self, timeout: float | None = None) -> RequestOutput:
        """Wait for the end of the call; `TimeoutError` after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            event = self._next(deadline)
            if event.output is not None:
                return event.output

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._abort(self.request_id)

    def _next(self, deadline: float | None) -> StreamEvent:
        if self._ended:
            raise StopIteration
        try:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            event = self._events.get(timeout=left)
        except queue.Empty:
            self.close()
            raise TimeoutError(
                f"The call {self.request_id} took too long and was aborted."
            ) from None
        return _checked(self, event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class AsyncStream:
    """`Stream` for asyncio: `aclose` aborts the call, and so does cancelling the reader."""

    def __init__(
        self, request_id: str, events: asyncio.Queue[Any], abort: Callable[[str], bool]
    ) -> None:
        self.request_id = request_id
        self._events = events
        self._abort = abort
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._ended:
            raise StopAsyncIteration
        try:
            event = await self._events.get()
        except asyncio.CancelledError:
            self.close()
            raise
        return _checked(self, event)

    async def result(self) -> RequestOutput:
        """Wait for the end of the call."""
        async for event in self:
            if event.output is not None:
                return event.output
        raise EngineError("the call ended without a result")

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._abort(self.request_id)

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _checked(stream: Stream | AsyncStream, event: Any) -> StreamEvent:
    if isinstance(event, BaseException):
        stream._ended = True
        raise event
    assert isinstance(event, StreamEvent)
    if event.output is not None:
        stream._ended = True
    return event
