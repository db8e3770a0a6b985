"""Many threads, many tasks, a call that is dropped half-way, a forked child."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from agentkv.client import errors as e
from agentkv.langchain import ChatAgentKV
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine

RULES = SystemMessage("You are kind. " * 10)


def find(place: str) -> str:
    """Find a parcel."""
    return place


def prompts(n: int) -> list[Any]:
    return [[RULES, HumanMessage(f"Question {i}")] for i in range(n)]


def idle(engine: Engine) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        stats = engine.stats()
        if not stats["num_requests_running"] and not stats["num_requests_waiting"]:
            return True
        time.sleep(0.005)
    return False


@pytest.mark.parametrize("where", ["inproc", "http"])
def test_thirty_two_threads_on_one_instance(
    shared: Engine, serve: Callable[..., str], where: str
) -> None:
    """R9: half of them bound to a tool that must be called. One computes what they share."""
    to: dict[str, Any] = {"engine": shared} if where == "inproc" else {"base_url": serve(shared)}
    with ChatAgentKV(model="tiny", max_tokens=90, **to) as llm:
        bound = llm.bind_tools([find], tool_choice="any")
        answers: dict[int, Any] = {}

        def work(i: int) -> None:
            model = bound if i % 2 else llm
            answers[i] = model.invoke(prompts(32)[i], max_tokens=90 if i % 2 else 4)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 32
        assert all(len(answers[i].tool_calls) == i % 2 for i in range(32))
        found = [CacheReport.from_message(answers[i]) for i in range(0, 32, 2)]
        cached = sorted(r.cached_tokens for r in found if r is not None)
        assert cached[1] > 100, "one computes the rules, the others find them"
        for i in (0, 1, 30, 31):
            model = bound if i % 2 else llm
            again = model.invoke(prompts(32)[i], max_tokens=90 if i % 2 else 4)
            assert again.content == answers[i].content
            args = [[c["args"] for c in a.tool_calls] for a in (again, answers[i])]
            assert args[0] == args[1]


def test_batch_and_abatch_of_thirty_two(shared: Engine) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=4)
    want = [a.text for a in llm.batch(prompts(32), {"max_concurrency": 32})]
    got = asyncio.run(llm.abatch(prompts(32)))
    assert [a.text for a in got] == want
    assert idle(shared)


# -- dropped half-way ----------------------------------------------------------------------------


def test_a_cancelled_task_aborts_the_call(shared: Engine) -> None:
    """R8: and what it computed stays."""
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=1500, min_tokens=1500)

    async def streamed() -> None:
        async for _ in llm.astream(prompts(1)[0]):
            await asyncio.sleep(0)

    async def whole() -> None:
        await llm.ainvoke(prompts(1)[0])

    async def main(work: Any) -> None:
        task = asyncio.create_task(work())
        while not shared.stats()["num_requests_running"]:
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for work in (streamed, whole):
        before = shared.stats()["aborted_total"]
        asyncio.run(main(work))
        assert idle(shared)
        assert shared.stats()["aborted_total"] == before + 1
    after = CacheReport.from_message(llm.invoke(prompts(1)[0], max_tokens=2, min_tokens=0))
    assert after is not None
    assert after.cached_tokens == after.prompt_tokens - 1


def test_a_stream_that_is_left_aborts_the_call(shared: Engine) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=1500, min_tokens=1500)
    before = shared.stats()["aborted_total"]
    for _ in llm.stream(prompts(1)[0]):
        break
    assert idle(shared)
    assert shared.stats()["aborted_total"] == before + 1


def test_a_late_answer_is_a_timeout_and_ends(shared: Engine) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=1800, min_tokens=1800, timeout=0.05)
    with pytest.raises(e.CallTimeout):
        llm.invoke("x")
    with pytest.raises(e.CallTimeout):
        list(llm.stream("x"))
    assert idle(shared)


# -- a forked child ------------------------------------------------------------------------------


def test_a_forked_child_calls_for_itself(tiny_llama_dir: Path) -> None:
    """R10: a server that forks its workers after the first call."""
    options = {"dtype": "float32", "threads": 1, "pool_tokens": 1024}
    llm = ChatAgentKV(model=str(tiny_llama_dir), engine_options=options, max_tokens=4)
    with llm:
        want = llm.invoke("Hello").text
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                os.write(writer, llm.invoke("Hello").text.encode())
            finally:
                os._exit(0)
        os.close(writer)
        got = b""
        while piece := os.read(reader, 4096):
            got += piece
        os.waitpid(child, 0)
        os.close(reader)
        assert got.decode() == want
        assert llm.invoke("Hello").text == want, "the parent goes on"
