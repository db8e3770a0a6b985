"""The handler's arithmetic: every call once, by whatever path, and nothing that was not computed."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_core.tracers import context

from agentkv.langchain import AgentKV, ChatAgentKV
from agentkv.langchain.handler import _CURRENT, CacheReportHandler, cache_report
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine


class Foreign(BaseChatModel):
    """A model of another provider: counts in its usage, or none, or an error."""

    details: dict[str, int] | None = None
    fails: bool = False

    def _answer(self) -> AIMessage:
        if self.fails:
            raise RuntimeError("a secret prompt")
        usage: Any = {"input_tokens": 100, "output_tokens": 2, "total_tokens": 102}
        if self.details is not None:
            usage["input_token_details"] = self.details
        return AIMessage("hi", usage_metadata=usage, response_metadata={"model_name": "foreign"})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer())])

    def _stream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer()
        yield ChatGenerationChunk(message=AIMessageChunk(content="h"))
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="i",
                usage_metadata=answer.usage_metadata,
                response_metadata=answer.response_metadata,
            )
        )

    @property
    def _llm_type(self) -> str:
        return "foreign"


@pytest.fixture
def llm(shared: Engine) -> ChatAgentKV:
    return ChatAgentKV(model="tiny", engine=shared, max_tokens=4)


def test_every_path_counts_once(llm: ChatAgentKV) -> None:
    """B049, B050: invoke, stream, batch, ainvoke, astream, abatch, v2 and v3 events."""
    llm.invoke("Hello there")
    want = CacheReport.from_message(llm.invoke("Hello there"))
    assert want is not None
    assert want.cached_tokens == want.prompt_tokens - 1

    async def later(config: Any) -> None:
        await llm.ainvoke("Hello there", config)
        async for _ in llm.astream("Hello there", config):
            pass
        await llm.abatch(["Hello there"], config)
        async for _ in llm.astream_events("Hello there", config, version="v2"):
            pass

    handler = CacheReportHandler()
    config: Any = {"callbacks": [handler]}
    llm.invoke("Hello there", config)
    list(llm.stream("Hello there", config))
    llm.batch(["Hello there"], config)
    _ = llm.stream_events("Hello there", config, version="v3").output
    asyncio.run(later(config))
    assert len(handler.rows) == 8
    for row in handler.rows:
        assert row.counted
        assert row.report is not None
        assert row.report.cached_tokens == want.cached_tokens
        assert row.model == "tiny"
        assert row.root == row.run_id
    total = handler.totals
    assert total.cached_tokens == 8 * want.cached_tokens
    assert total.prompt_tokens == 8 * want.prompt_tokens
    assert handler.hit_rate == handler.hit_ratio == want.cached_tokens / want.prompt_tokens


def test_the_response_cache_is_booked_apart(llm: ChatAgentKV, shared: Engine) -> None:
    """B055: the second call reaches no engine, and is no KV hit; another tool list is no hit."""

    @tool
    def weather(city: str) -> str:
        """Look up the weather."""
        return city

    cached = llm.model_copy(update={"cache": InMemoryCache()})
    with cache_report() as r:
        first = cached.invoke("Hello there")
        calls = shared.stats()["requests_total"]
        for _ in range(2):
            assert cached.invoke("Hello there").text == first.text
        assert shared.stats()["requests_total"] == calls, "no engine worked"
        cached.bind_tools([weather], tool_choice="none").invoke("Hello there")
        assert shared.stats()["requests_total"] == calls + 1, "the key includes the tools"
    kinds = [row.kind for row in r.rows]
    assert kinds == ["call", "response_cache", "response_cache", "call"]
    assert (r.totals.calls, r.totals.response_cache) == (2, 2)
    want = [CacheReport.from_message(first)]
    assert r.totals.prompt_tokens == want[0].prompt_tokens + r.rows[3].report.prompt_tokens  # type: ignore[union-attr]
    assert "response cache" in drawn(r)


def test_a_stored_answer_is_known_by_its_id(llm: ChatAgentKV) -> None:
    """A stored answer whose cost was lost on the way still has the id of the first one."""
    handler = CacheReportHandler()
    message = llm.invoke("Hello there")
    from langchain_core.outputs import LLMResult

    for _ in range(2):
        run = uuid4()
        handler.on_chat_model_start({}, [], run_id=run)
        handler.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]), run_id=run)
    assert [row.kind for row in handler.rows] == ["call", "response_cache"]


def test_unknown_is_not_zero() -> None:
    handler = CacheReportHandler()
    config: Any = {"callbacks": [handler]}
    assert math.isnan(handler.hit_rate)
    assert not handler.hit_rate > 0.5, "no evidence passes no test"
    Foreign().invoke("x", config)
    assert math.isnan(handler.hit_rate)
    Foreign(details={"cache_read": 0}).invoke("x", config)
    assert handler.hit_rate == 0.0
    Foreign(details={"cache_read": 60}).invoke("x", config)
    list(Foreign(details={"cache_read": 60}).stream("x", config))
    assert handler.hit_rate == 120 / 300
    total = handler.totals
    assert (total.calls, total.unknown, total.prompt_tokens) == (4, 1, 300)
    assert set(handler.by_model()) == {"foreign"}
    json.dumps(handler.to_dict(), allow_nan=False)


def test_errors_are_counted_and_quote_nothing() -> None:
    with cache_report() as r:
        for _ in range(2):
            with pytest.raises(RuntimeError):
                Foreign(fails=True).invoke("x")
    assert (r.totals.calls, r.totals.errors) == (0, 2)
    assert r.rows[0].error == "RuntimeError"
    assert "secret" not in json.dumps(r.to_dict()) + drawn(r)


def test_a_stream_that_is_left_is_no_error(llm: ChatAgentKV) -> None:
    async def left() -> None:
        async for _ in llm.astream("Hello there"):
            break

    async def cancelled() -> None:
        async def whole() -> None:
            async for _ in llm.astream("Hello there", max_tokens=900):
                begun.set()

        begun = asyncio.Event()
        task = asyncio.create_task(whole())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with cache_report() as r:
        stream = llm.stream("Hello there")
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        asyncio.run(left())
        asyncio.run(cancelled())
        llm.invoke("Hello there")
    assert [row.kind for row in r.rows] == ["cancelled"] * 3 + ["call"]
    assert (r.totals.calls, r.totals.cancelled, r.totals.errors) == (1, 3, 0)
    assert r.to_dict()["totals"]["cancelled"] == 3
    assert "3 cancelled" in drawn(r)
    assert "failed" not in drawn(r)


def test_text_models_report_by_their_generation_info(shared: Engine) -> None:
    llm = AgentKV(model="tiny", engine=shared, max_tokens=2)
    handler = CacheReportHandler()
    config: Any = {"callbacks": [handler]}
    llm.invoke("Once upon a time", config)
    llm.invoke("Once upon a time", config)
    list(llm.stream("Once upon a time", config))
    rows = handler.rows
    assert [row.kind for row in rows] == ["call"] * 3
    assert [row.report.cached_tokens > 0 for row in rows if row.report] == [False, True, True]
    assert rows[0].model == "tiny"


def test_rows_know_their_place_in_a_graph(llm: ChatAgentKV) -> None:
    from langgraph.graph import END, START, MessagesState, StateGraph

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [llm.invoke(state["messages"])]}

    inner = StateGraph(MessagesState)
    inner.add_node("think", ask)
    inner.add_edge(START, "think")
    inner.add_edge("think", END)
    outer = StateGraph(MessagesState)
    outer.add_node("answer", ask)
    outer.add_node("researcher", inner.compile())
    outer.add_edge(START, "answer")
    outer.add_edge("answer", "researcher")
    outer.add_edge("researcher", END)
    graph = outer.compile()
    config: Any = {"configurable": {"thread_id": "t1"}}

    async def later() -> None:
        await graph.ainvoke({"messages": [HumanMessage("Hello there")]}, config)

    with cache_report() as r:
        graph.invoke({"messages": [HumanMessage("Hello there")]}, config)
        asyncio.run(later())
    assert [(row.namespace, row.node, row.step) for row in r.rows] == [
        ("", "answer", 1),
        ("researcher", "think", 1),
    ] * 2
    assert {row.thread for row in r.rows} == {"t1"}
    assert [t.calls for t in r.by_node().values()] == [2, 2]
    assert [t.calls for t in r.by_namespace().values()] == [2, 2]
    assert [t.calls for t in r.by_run().values()] == [2, 2], "a tree for each invoke"
    assert all(row.root != row.run_id and row.parent is not None for row in r.rows)
    assert r.hit_rate > 0.5
    assert not r._roots, "trees that ended are forgotten"
    assert not r._open


def test_misses_say_what_was_lost_where(llm: ChatAgentKV) -> None:
    from langchain_core.messages import SystemMessage

    off = llm.model_copy(update={"layout": "off", "session": "m"})
    rules = "Be kind to all. " * 10
    with cache_report() as r:
        for clock in ("12:00", "13:11"):
            off.invoke([SystemMessage(f"Now: {clock}. {rules}"), HumanMessage("Hi")])
    (row,) = r.misses()
    assert row.report is not None
    assert row.report.reason == "text_changed"
    assert row is r.rows[1]


def test_blocks_nest_and_end(llm: ChatAgentKV) -> None:
    with cache_report() as outer:
        llm.invoke("one")
        with cache_report() as inner:
            llm.invoke("two")
            # Inside a run that the outer block sees itself: still once.
            RunnableLambda(llm.invoke).invoke("three")
        llm.invoke("four")
    llm.invoke("five")
    assert len(outer.rows) == 4
    assert len(inner.rows) == 2

    def nested(text: str) -> Any:
        with cache_report() as within:
            llm.invoke(text)
        assert len(within.rows) == 1
        return text

    with cache_report() as outer:
        RunnableLambda(nested).invoke("six")
    assert len(outer.rows) == 1, "the same run by two ways"


def test_an_error_ends_the_block(llm: ChatAgentKV) -> None:
    with pytest.raises(ZeroDivisionError), cache_report() as r:
        raise ZeroDivisionError
    llm.invoke("after")
    assert r.rows == ()


def test_a_handler_that_is_also_passed_in_counts_once(llm: ChatAgentKV) -> None:
    with cache_report() as r:
        llm.invoke("one", {"callbacks": [r]})
    assert len(r.rows) == 1


def test_a_hundred_uses_leave_nothing_behind(llm: ChatAgentKV) -> None:
    before = len(context._configure_hooks)
    assert sum(hook[0] is _CURRENT for hook in context._configure_hooks) == 1
    for _ in range(100):
        with cache_report():
            pass
    assert len(context._configure_hooks) == before
    assert _CURRENT.get() is None


def test_tasks_and_langchains_threads_inherit_the_block(llm: ChatAgentKV) -> None:
    async def main() -> int:
        with cache_report() as r:
            await asyncio.gather(*(asyncio.create_task(llm.ainvoke(f"q{i}")) for i in range(4)))
            llm.batch([f"q{i}" for i in range(4)])
        return len(r.rows)

    assert asyncio.run(main()) == 8


def test_two_blocks_side_by_side_do_not_mix() -> None:
    async def one(n: int) -> int:
        with cache_report() as r:
            for _ in range(n):
                await Foreign(details={"cache_read": 1}).ainvoke("x")
                await asyncio.sleep(0)
        return len(r.rows)

    async def main() -> list[int]:
        return list(await asyncio.gather(one(1), one(3), one(5)))

    assert asyncio.run(main()) == [1, 3, 5]


def test_many_threads_and_a_bound() -> None:
    handler = CacheReportHandler(limit=10)
    model = Foreign(details={"cache_read": 50})

    def work() -> None:
        for _ in range(25):
            model.invoke("x", {"callbacks": [handler]})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(handler.rows) == 10
    assert handler.totals.calls == 100
    assert handler.totals.cached_tokens == 5000
    handler.clear()
    assert handler.rows == ()
    assert handler.totals.calls == 0


def drawn(handler: CacheReportHandler) -> str:
    import io

    from rich.console import Console

    out = io.StringIO()
    Console(width=160, file=out).print(handler)
    return out.getvalue()


def test_the_table_and_the_dict(llm: ChatAgentKV) -> None:
    with cache_report() as r:
        llm.invoke("one [b]two[/b]")
        llm.invoke("one [b]two[/b]")
        Foreign().invoke("x")
    text = drawn(r)
    assert "3 calls" in text
    assert "1 unknown" in text
    data = json.loads(json.dumps(r.to_dict()))
    assert data["schema"] == 1
    assert data["totals"]["calls"] == 3
    assert data["totals"]["hit_rate"] == round(r.hit_rate, 4)
    assert len(data["rows"]) == 3
    assert data["rows"][0]["report"]["schema"] == 1
    assert "calls=3" in repr(r)
