"""Hints that an agent's runs send: a tool pauses its session, a new run resumes it, an end ends it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from agentkv import CacheHintHandler
from agentkv.engine import SamplingParams
from agentkv.langchain import ChatAgentKV
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine

POOL = 2048
Place = Annotated[str, Field(max_length=6)]


class OneCall(AgentMiddleware):
    """A call when a person spoke, text when a tool did: the model is random and would not end."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        asked = isinstance(request.messages[-1], HumanMessage)
        return handler(request.override(tool_choice="any" if asked else "none"))


@pytest.fixture(params=["inproc", "http"])
def made(
    request: pytest.FixtureRequest,
    make_engine: Callable[..., Engine],
    serve: Callable[..., str],
) -> tuple[Engine, ChatAgentKV]:
    engine = make_engine(pool_tokens=POOL, eviction="lru", pause_share=0.6, check_invariants=False)
    where = {"engine": engine} if request.param == "inproc" else {"base_url": serve(engine)}
    return engine, ChatAgentKV(model="tiny", max_tokens=100, **where)


def agent_of(engine: Engine, model: ChatAgentKV, handler: CacheHintHandler | None) -> Any:
    @tool
    def find(place: Place) -> str:
        """Find a parcel."""
        if handler is not None:
            handler.flush()
        for seed in range(4):
            ids = [10 + (seed * 7 + i * i) % 200 for i in range(900)]
            engine.generate(ids, SamplingParams(max_tokens=1, temperature=0.0))
        return "It is here."

    return create_agent(model, [find], middleware=[OneCall()], checkpointer=InMemorySaver())


def run(agent: Any, handler: CacheHintHandler | None, text: str = "Where is it?") -> Any:
    config: dict[str, Any] = {"configurable": {"thread_id": "t1"}}
    if handler is not None:
        config["callbacks"] = [handler]
    return agent.invoke({"messages": [HumanMessage(text)]}, config)


def report(out: Any) -> CacheReport:
    found = CacheReport.from_message(out["messages"][-1])
    assert found is not None
    return found


def test_a_session_survives_what_others_do_while_its_tool_runs(
    made: tuple[Engine, ChatAgentKV],
) -> None:
    engine, model = made
    lost = report(run(agent_of(engine, model, None), None))
    assert lost.cached_tokens < lost.prompt_tokens / 2
    engine.flush()
    with CacheHintHandler(model) as handler:
        kept = report(run(agent_of(engine, model, handler), handler))
    assert kept.cached_tokens > kept.prompt_tokens / 2
    hints = engine.stats()["hints_total"]
    assert hints["pause"] == 1
    assert hints["release"] == 0
    # The hint for a session that nobody knows yet goes out or is dropped; it never fails.
    assert handler.sent + handler.dropped == 2


def test_a_second_run_prefetches_and_the_end_releases(made: tuple[Engine, ChatAgentKV]) -> None:
    engine, model = made
    with CacheHintHandler(model, release=True) as handler:
        agent = agent_of(engine, model, handler)
        run(agent, handler)
        run(agent, handler, "And now?")
        handler.flush()
    hints = engine.stats()["hints_total"]
    assert (hints["pause"], hints["release"]) == (2, 2)
    assert hints["prefetch"] >= 1
    assert engine.stats()["paused_tokens"] == 0


async def test_async_runs(made: tuple[Engine, ChatAgentKV]) -> None:
    engine, model = made

    @tool
    async def find(place: Place) -> str:
        """Find a parcel."""
        return "It is here."

    class OneCallA(OneCall):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            asked = isinstance(request.messages[-1], HumanMessage)
            return await handler(request.override(tool_choice="any" if asked else "none"))

    with CacheHintHandler(model) as handler:
        agent = create_agent(model, [find], middleware=[OneCallA()])
        await agent.ainvoke(
            {"messages": [HumanMessage("Where?")]},
            {"configurable": {"thread_id": "t2"}, "callbacks": [handler]},
        )
        handler.flush()
    assert engine.stats()["hints_total"]["pause"] == 1


def test_without_a_session_nothing_is_sent(made: tuple[Engine, ChatAgentKV]) -> None:
    _, model = made
    with CacheHintHandler(model) as handler:
        agent = create_agent(model, [], middleware=[])
        agent.invoke({"messages": [HumanMessage("Hello")]}, {"callbacks": [handler]})
        handler.flush()
    assert handler.sent == handler.dropped == 0


def test_an_engine_that_is_gone_fails_nothing() -> None:
    model = ChatAgentKV(model="tiny", base_url="http://127.0.0.1:9", session="s", max_retries=0)
    with CacheHintHandler(model) as handler:
        handler.on_tool_start({}, "x")
        handler.flush()
        assert (handler.sent, handler.dropped) == (0, 1)


def test_a_full_queue_drops_hints_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    model = ChatAgentKV(model="tiny", base_url="http://127.0.0.1:9", session="s")
    free = threading.Event()
    monkeypatch.setattr(CacheHintHandler, "_tell", lambda self, *a: free.wait(10))
    handler = CacheHintHandler(model, waiting=2)
    for _ in range(10):
        handler.on_tool_start({}, "x")
    assert handler.dropped >= 7
    free.set()
    handler.close()
    handler.close()


def test_settings_are_checked() -> None:
    model = ChatAgentKV(model="tiny", base_url="http://127.0.0.1:9")
    with pytest.raises(ValueError, match="tool_seconds"):
        CacheHintHandler(model, tool_seconds=0)
    with pytest.raises(ValueError, match="pin must be True"):
        ChatAgentKV(model="tiny", base_url="http://127.0.0.1:9", pin=-3.0)
    assert pickle.loads(pickle.dumps(ChatAgentKV(model="tiny", pin=True))).pin is True


def test_pin_keeps_the_lasting_part_of_every_call(made: tuple[Engine, ChatAgentKV]) -> None:
    engine, model = made
    pinned = model.model_copy(update={"pin": 600})
    pinned.invoke([("system", "You answer questions about parcels. " * 6), ("user", "Where?")])
    (pin,) = engine.pins()
    assert 500 < pin.seconds <= 600
    for seed in range(4):
        ids = [10 + (seed * 7 + i * i) % 200 for i in range(900)]
        engine.generate(ids, SamplingParams(max_tokens=1, temperature=0.0))
    again = pinned.invoke(
        [("system", "You answer questions about parcels. " * 6), ("user", "When?")]
    )
    found = CacheReport.from_message(again)
    assert found is not None and found.cached_tokens >= pin.tokens > 100
    assert len(engine.pins()) == 1
