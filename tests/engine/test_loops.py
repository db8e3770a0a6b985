"""One engine under several event loops, and under loops that end before their calls do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentkv.engine.types import SamplingParams

if TYPE_CHECKING:
    from agentkv.engine import Engine
    from agentkv.engine.stream import AsyncStream

Make = Callable[..., "Engine"]
LONG = SamplingParams(max_tokens=1900, temperature=0, ignore_eos=True)
SHORT = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


def test_a_call_whose_loop_is_closed_is_aborted_while_its_stream_is_held(make_engine: Make) -> None:
    engine = make_engine()

    async def begin() -> AsyncStream:
        stream = engine.astream("abc", LONG)
        async for event in stream:
            if event.token_ids:
                break
        return stream

    held = asyncio.run(begin())
    end = time.monotonic() + 10
    while engine.stats()["num_requests_running"]:
        assert time.monotonic() < end
        time.sleep(0.01)
    stats = engine.stats()
    assert (stats["aborted_total"], stats["locked_tokens"]) == (1, 0)
    assert stats["generation_tokens_total"] < 1900
    held.close()


def test_loops_of_several_threads_share_an_engine_and_cancel_calls(make_engine: Make) -> None:
    engine = make_engine(max_running=4)
    expected = engine.generate("hello there", SHORT).choices[0].token_ids
    wrong: list[object] = []

    async def call(number: int) -> None:
        task = asyncio.create_task(engine.agenerate("hello there", SHORT))
        if number % 3 == 0:
            await asyncio.sleep(0.001 * number)
            task.cancel()
        try:
            found = (await task).choices[0].token_ids
        except asyncio.CancelledError:
            return
        if found != expected:
            wrong.append(found)

    async def calls() -> None:
        await asyncio.gather(*(call(number) for number in range(10)))

    def work() -> None:
        try:
            asyncio.run(calls())
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    engine.check()
    assert engine.stats()["locked_tokens"] == 0
