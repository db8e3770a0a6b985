"""One HTTP request's calls of the engine: run to the end, or opened as streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv.engine.errors import EngineClosed
from agentkv.engine.serve.record import ABORTED, Asked, never_ran
from agentkv.engine.serve.service import Service
from agentkv.engine.types import (
    CacheFacts,
    IntArray,
    RenderedPrompt,
    RequestOutput,
    SamplingParams,
    StreamEvent,
)

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One prompt and how to go on from it."""

    prompt: RenderedPrompt | IntArray
    params: SamplingParams
    session: str | None = None
    salt: str | None = None
    pin: float | None = None

    @property
    def prompt_ids(self) -> IntArray:
        return self.prompt.token_ids if isinstance(self.prompt, RenderedPrompt) else self.prompt


class Job:
    """The calls of one HTTP request, under one request id. `asked`: that request; None for a call
    of the server's own, which is neither recorded nor kept.

    Use either `outputs` or `open` + `events`, and `aclose` in the end. Whatever is still running
    when an exception (a refused call, a client that left) passes through is aborted.
    """

    def __init__(
        self,
        service: Service,
        engine: Engine,
        calls: Sequence[Call],
        request_id: str,
        asked: Asked | None = None,
    ) -> None:
        self._service = service
        self._engine = engine
        self.calls = tuple(calls)
        self._asked = asked
        tenant = None if asked is None else asked.tenant
        self._ticket = service.open(request_id, len(self.calls), tenant)
        self._streams: list[AsyncIterator[StreamEvent]] = []
        self._early: list[tuple[int, StreamEvent]] = []
        self._unfinished = dict.fromkeys(range(len(self.calls)))
        self._facts: dict[int, CacheFacts] = {}

    async def outputs(self) -> list[RequestOutput]:
        """Every call's output, in order. The first error aborts the other calls and is raised."""
        tasks = [
            asyncio.ensure_future(
                self._engine.agenerate(
                    call.prompt,
                    call.params,
                    session=call.session,
                    salt=call.salt,
                    pin=call.pin,
                    request_id=engine_id,
                )
            )
            for call, engine_id in zip(self.calls, self._ticket.engine_ids, strict=True)
        ]
        try:
            outputs = await asyncio.gather(*tasks)
        except BaseException as error:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._failed(error)
            raise
        finally:
            self._service.close(self._ticket)
        for index, output in enumerate(outputs):
            self._finished(index, output)
        return list(outputs)

    async def open(self) -> list[CacheFacts]:
        """Start streaming; the cache facts of every call, which are known before any token.

        Errors in the request are raised here, while a status line can still be sent.
        """
        try:
            for call, engine_id in zip(self.calls, self._ticket.engine_ids, strict=True):
                self._streams.append(
                    self._engine.astream(
                        call.prompt,
                        call.params,
                        session=call.session,
                        salt=call.salt,
                        pin=call.pin,
                        request_id=engine_id,
                    )
                )
            firsts = [await self._first(i) for i in range(len(self._streams))]
        except BaseException as error:
            self._failed(error)
            await self.aclose()
            raise
        return firsts

    async def events(self) -> AsyncGenerator[tuple[int, StreamEvent], None]:
        """`(call's index, event)` after the first events, as they come."""
        for early in self._early:
            if early[1].output is not None:
                self._finished(early[0], early[1].output)
            yield early
        source = _tagged(0, self._streams[0]) if len(self._streams) == 1 else _merged(self._streams)
        try:
            async for index, event in source:
                if event.output is not None:
                    self._finished(index, event.output)
                yield index, event
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            await source.aclose()

    async def aclose(self) -> None:
        """Abort what still runs. Harmless when all is done, and when called again."""
        streams, self._streams = self._streams, []
        for stream in streams:
            close = getattr(stream, "aclose", None)
            if close is not None:
                with suppress(Exception):
                    await close()
        if self._unfinished:
            self._failed(asyncio.CancelledError())
        self._service.close(self._ticket)

    async def _first(self, index: int) -> CacheFacts:
        """The facts of one call. One that is aborted while it waits has them at its end only, after
        events that belong to the reply."""
        async for event in self._streams[index]:
            if event.index >= 0 or event.output is not None:
                self._early.append((index, event))
            if event.cache is not None:
                if event.output is None:
                    self._facts[index] = event.cache
                return event.cache
        raise EngineClosed("The engine ended a stream before it began.")

    def _finished(self, index: int, output: RequestOutput) -> None:
        self._unfinished.pop(index, None)
        service, call, asked = self._service, self.calls[index], self._asked
        service.metrics.finished(output, time.perf_counter() - self._ticket.started)
        if asked is None:
            return
        if not never_ran(output):
            service.verdicts.put(self._ticket.request_id, asked, index, call, output.cache)
        if service.recorder is not None:
            service.recorder.finished(asked, index, call, output)

    def _failed(self, error: BaseException) -> None:
        self._service.note(error)
        gone = isinstance(error, (asyncio.CancelledError, GeneratorExit))
        for index in self._unfinished:
            self._service.metrics.failed("abort" if gone else "error")
            if self._asked is not None:
                self._note_failed(self._asked, index, ABORTED if gone else type(error).__name__)
        self._unfinished.clear()

    def _note_failed(self, asked: Asked, index: int, error: str) -> None:
        """One call was refused, or the client left; the others of its request end with it."""
        service, call, facts = self._service, self.calls[index], self._facts.get(index)
        if facts is not None:
            service.verdicts.put(self._ticket.request_id, asked, index, call, facts)
        if service.recorder is not None:
            service.recorder.failed(
                asked,
                index,
                call,
                request_id=self._ticket.engine_ids[index],
                model=self._engine.model_name,
                error=None if error == ABORTED and facts is not None else error,
                facts=facts,
            )


async def _tagged(
    index: int, stream: AsyncIterator[StreamEvent]
) -> AsyncGenerator[tuple[int, StreamEvent], None]:
    async for event in stream:
        yield index, event


async def _merged(
    streams: Sequence[AsyncIterator[StreamEvent]],
) -> AsyncGenerator[tuple[int, StreamEvent], None]:
    """Events of several streams in the order in which they arrive."""
    queue: asyncio.Queue[tuple[int, StreamEvent | BaseException | None]] = asyncio.Queue()

    async def pump(index: int, stream: AsyncIterator[StreamEvent]) -> None:
        try:
            async for event in stream:
                queue.put_nowait((index, event))
            queue.put_nowait((index, None))
        except Exception as error:
            queue.put_nowait((index, error))

    tasks = [asyncio.create_task(pump(i, stream)) for i, stream in enumerate(streams)]
    try:
        left = len(tasks)
        while left:
            index, item = await queue.get()
            if item is None:
                left -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
