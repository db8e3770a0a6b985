"""create_agent and LangGraph: calls, checkpoints, and the same bytes whichever way a turn was run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, Field

from agentkv.langchain import ChatAgentKV
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine


Place = Annotated[str, Field(max_length=6)]


@tool
def find(place: Place) -> str:
    """Find a parcel."""
    return f"It is at {len(place)}."


@tool
def send(place: Place, urgent: bool) -> str:
    """Send a parcel."""
    return "Sent."


class Parcel(BaseModel):
    """Where a parcel is."""

    place: str = Field(max_length=8)
    days: int = Field(ge=0, le=9)


class OneCall(AgentMiddleware):
    """A call when a person spoke, text when a tool did: the model is random and would not end."""

    def _choose(self, request: Any) -> Any:
        asked = isinstance(request.messages[-1], HumanMessage)
        return request.override(tool_choice="any" if asked else "none")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._choose(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._choose(request))


@pytest.fixture(params=["inproc", "http"])
def llm(
    request: pytest.FixtureRequest, shared: Engine, serve: Callable[..., str]
) -> Iterator[ChatAgentKV]:
    where: dict[str, Any] = (
        {"engine": shared} if request.param == "inproc" else {"base_url": serve(shared)}
    )
    with ChatAgentKV(model="tiny", max_tokens=100, **where) as made:
        yield made


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def agent_of(llm: ChatAgentKV, **more: Any) -> Any:
    return create_agent(
        llm,
        tools=[find, send],
        system_prompt="You look after parcels. " * 3,
        middleware=[OneCall()],
        checkpointer=InMemorySaver(),
        **more,
    )


def ask(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def answers(state: dict[str, Any]) -> list[AIMessage]:
    return [m for m in state["messages"] if isinstance(m, AIMessage)]


def test_an_agent_calls_and_answers_and_reuses(llm: ChatAgentKV) -> None:
    agent = agent_of(llm)
    for turn in ("Where is it?", "And now?"):
        state = agent.invoke(ask(turn), thread("one"))
    said = answers(state)
    assert [bool(m.tool_calls) for m in said] == [True, False, True, False]
    results = [m for m in state["messages"] if isinstance(m, ToolMessage)]
    assert [m.status for m in results] == ["success", "success"]
    assert [m.tool_call_id for m in results] == [
        m.tool_calls[0]["id"] for m in said if m.tool_calls
    ]
    found = [CacheReport.from_message(m) for m in said]
    # All that was there when a call was made is there for its result, the sampled call included.
    # (The random model's text is broken UTF-8, which no client can send back as it was.)
    for before, after in ((found[0], found[1]), (found[2], found[3])):
        assert before is not None
        assert after is not None
        assert after.reason == "appended"
        assert after.cached_tokens >= before.prompt_tokens + before.completion_tokens - 1
    assert found[1] is not None
    assert found[2] is not None
    assert found[2].cached_tokens >= found[1].prompt_tokens - 1


def test_three_ways_to_run_a_turn_leave_the_same_bytes(shared: Engine) -> None:
    """A checkpoint holds a text after `invoke`, and a list of blocks after an event stream."""
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=100)

    def invoked(agent: Any, config: Any) -> None:
        agent.invoke(ask("Where is it?"), config)

    def streamed(agent: Any, config: Any) -> None:
        for _ in agent.stream(ask("Where is it?"), config, stream_mode="messages"):
            pass

    def events(agent: Any, config: Any) -> None:
        for _ in agent.stream_events(ask("Where is it?"), config, version="v3"):
            pass

    prompts, contents = {}, {}
    agent = agent_of(llm)
    for name, run in (("invoke", invoked), ("messages", streamed), ("v3", events)):
        shared.flush()
        run(agent, thread(name))
        kept = agent.get_state(thread(name)).values["messages"]
        contents[name] = [type(m.content) for m in kept if isinstance(m, AIMessage)]
        arranged = llm._arrange(
            [*kept, HumanMessage("And now?")],
            tools=[find, send],
            documents=None,
            layout=None,
            session=None,
            remember=False,
        )
        prompt = shared.render(arranged.messages, arranged.tools)
        prompts[name] = (prompt.text, prompt.token_ids.tolist())
    assert prompts["invoke"] == prompts["messages"] == prompts["v3"]
    assert contents["invoke"] == [str, str]


async def test_an_async_agent_reports_as_a_sync_one(llm: ChatAgentKV) -> None:
    def facts(state: dict[str, Any]) -> list[Any]:
        return [
            (m.text, [c["args"] for c in m.tool_calls], m.usage_metadata) for m in answers(state)
        ]

    first = await agent_of(llm).ainvoke(ask("Where is it?"), thread("warm"))
    want = agent_of(llm).invoke(ask("Where is it?"), thread("sync"))
    got = await agent_of(llm).ainvoke(ask("Where is it?"), thread("async"))
    streamed: list[Any] = []
    async for mode, part in agent_of(llm).astream(
        ask("Where is it?"), thread("stream"), stream_mode=["messages", "values"]
    ):
        if mode == "values":
            streamed.append(part)
    assert facts(got) == facts(want) == facts(streamed[-1])
    assert [x[:2] for x in facts(first)] == [x[:2] for x in facts(want)]


def test_structured_responses(llm: ChatAgentKV) -> None:
    """Both strategies; without one, the profile lets the agent take the model's own way."""
    assert llm.profile is not None
    assert llm.profile["structured_output"]
    for wanted in (ToolStrategy(Parcel), ProviderStrategy(Parcel), Parcel):
        agent: Any = create_agent(llm, tools=[], response_format=wanted)
        state = agent.invoke(ask("Where is it?"))
        assert isinstance(state["structured_response"], Parcel)


def test_tools_beside_a_structured_response(llm: ChatAgentKV) -> None:
    """R17: the answer after the tool's result is the object, in the same prompt."""
    agent: Any = create_agent(
        llm,
        tools=[find, send],
        response_format=ProviderStrategy(Parcel),
        middleware=[Settings()],
    )
    state = agent.invoke(ask("Where is it?"))
    assert [bool(m.tool_calls) for m in answers(state)] == [True, False]
    assert isinstance(state["structured_response"], Parcel)


class Settings(AgentMiddleware):
    """`tool_choice` by way of `model_settings`: with a provider's strategy the agent sets none."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        asked = isinstance(request.messages[-1], HumanMessage)
        choice = "any" if asked else "none"
        return handler(request.override(model_settings={"tool_choice": choice}))


def test_only_allowed_tools_are_called_and_the_prompt_stays(llm: ChatAgentKV) -> None:
    """R6: a selection masks; it does not shorten the list, so the prefix is the same."""
    prompts, names = [], []
    for only in (["find"], ["send"], None):
        bound = llm.bind_tools([find, send], tool_choice="any", allowed_tools=only)
        message = bound.invoke("Where is it?")
        report = CacheReport.from_message(message)
        assert report is not None
        prompts.append((report.prompt_tokens, report.cached_tokens))
        names.append({c["name"] for c in message.tool_calls})
    assert names[:2] == [{"find"}, {"send"}]
    assert len({tokens for tokens, _ in prompts}) == 1
    assert [cached for _, cached in prompts[1:]] == [prompts[0][0] - 1] * 2


def test_disable_streaming_and_rate_limits_are_cores_own(shared: Engine) -> None:
    """R18, with tools: a graph that streams gets one whole message."""
    from langchain_core.rate_limiters import InMemoryRateLimiter

    limiter = InMemoryRateLimiter(requests_per_second=1000, check_every_n_seconds=0.001)
    taken: list[bool] = []
    acquire = limiter.acquire

    def counted(*, blocking: bool = True) -> bool:
        taken.append(blocking)
        return acquire(blocking=blocking)

    limiter.acquire = counted  # type: ignore[method-assign]
    llm = ChatAgentKV(
        model="tiny",
        engine=shared,
        max_tokens=100,
        rate_limiter=limiter,
        disable_streaming="tool_calling",
    )
    bound = llm.bind_tools([find], tool_choice="any")
    assert len(list(bound.stream("x"))) == 1
    assert len(list(llm.stream("x", max_tokens=5, min_tokens=5))) > 2
    assert len(taken) == 2
