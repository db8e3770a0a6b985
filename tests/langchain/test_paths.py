"""Every way to call the model says the same: text, calls, objects, counts, reasons."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable
from pydantic import BaseModel, Field

from agentkv.client.base import CallRequest, ChatDelta, ChatReply, ReplyChoice
from agentkv.engine.text.calls.answer import CallDelta, ToolCall
from agentkv.langchain import ChatAgentKV, Pricing
from agentkv.prompt import static, volatile
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine

MESSAGES = [
    SystemMessage([volatile("Now: 12:00.", name="clock"), static("You are kind.")]),
    HumanMessage("Where is it?"),
]


def find(place: Annotated[str, Field(max_length=5)], urgent: bool = False) -> str:
    """Find a parcel."""
    return place


class Parcel(BaseModel):
    """Where a parcel is."""

    place: str = Field(max_length=8)


def bound(llm: ChatAgentKV, kind: str) -> Runnable[Any, AIMessage]:
    match kind:
        case "call":
            return llm.bind_tools([find], tool_choice="any")
        case "object":
            return llm.bind_tools([find], tool_choice="none", response_format=Parcel)
        case _:
            return llm


def joined(chunks: list[Any]) -> AIMessage:
    whole: Any = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert isinstance(whole, AIMessage)
    return whole


async def _astream(model: Any) -> AIMessage:
    return joined([chunk async for chunk in model.astream(MESSAGES)])


async def _av3(model: Any) -> AIMessage:
    stream = await model.astream_events(MESSAGES, version="v3")
    message = await stream.output
    assert isinstance(message, AIMessage)
    return message


async def _abatch(model: Any) -> AIMessage:
    (message,) = await model.abatch([MESSAGES])
    assert isinstance(message, AIMessage)
    return message


PATHS: dict[str, Callable[[Any], AIMessage]] = {
    "invoke": lambda m: m.invoke(MESSAGES),
    "stream": lambda m: joined(list(m.stream(MESSAGES))),
    "batch": lambda m: m.batch([MESSAGES])[0],
    "v3": lambda m: m.stream_events(MESSAGES, version="v3").output,
    "ainvoke": lambda m: asyncio.run(m.ainvoke(MESSAGES)),
    "astream": lambda m: asyncio.run(_astream(m)),
    "abatch": lambda m: asyncio.run(_abatch(m)),
    "av3": lambda m: asyncio.run(_av3(m)),
    "as a graph streams": lambda m: m.invoke(MESSAGES, stream=True),
}


def facts(message: AIMessage) -> dict[str, Any]:
    """What must be equal: everything but times, ids, and how content is wrapped."""
    report = dict(message.response_metadata["agentkv"])
    report.pop("ms")
    report.pop("saved_prefill_ms")
    return {
        "text": message.text,
        "calls": [(c["name"], c["args"], bool(c["id"])) for c in message.tool_calls],
        "invalid": message.invalid_tool_calls,
        "finish_reason": message.response_metadata["finish_reason"],
        "model": message.response_metadata["model_name"],
        "usage": message.usage_metadata,
        "report": report,
    }


@pytest.mark.parametrize("kind", ["text", "call", "object"])
def test_every_path_in_and_out_of_process_says_the_same(
    shared: Engine, serve: Callable[..., str], kind: str
) -> None:
    """Each path on a fresh engine state and a fresh session: once cold, once warm."""
    want: list[Any] = []
    count = itertools.count()
    for where in ({"engine": shared}, {"base_url": serve(shared)}):
        for name, call in PATHS.items():
            shared.flush()
            shared._core.explainer.forget()
            session = f"paths-{kind}-{next(count)}"
            room = 8 if kind == "text" else 80
            with ChatAgentKV(model="tiny", max_tokens=room, session=session, **where) as llm:
                got = [facts(call(bound(llm, kind))) for _ in range(2)]
            want = want or got
            assert got == want, (where, name)
    for which, fact in enumerate(want):
        usage = fact["usage"]
        details = usage["input_token_details"]
        assert 0 <= details["cache_read"] <= usage["input_tokens"] - 1
        assert details["cache_read"] == (usage["input_tokens"] - 1 if which else 0)
        assert details["cache_read"] + details["cache_creation"] <= usage["input_tokens"]
        assert all(isinstance(v, int) for v in (*details.values(), usage["output_tokens"]))
    assert [f["report"]["miss"] and f["report"]["miss"]["reason"] for f in want] == [
        "first_call",
        None,
    ]
    assert {key: v for key, v in want[0].items() if key not in ("usage", "report")} == {
        key: v for key, v in want[1].items() if key not in ("usage", "report")
    }, "reuse changes nothing"
    if kind == "call":
        assert [c[0] for c in want[0]["calls"]] == ["find"]
        assert (want[0]["text"], want[0]["finish_reason"]) == ("", "tool_calls")
    if kind == "object":
        assert Parcel.model_validate_json(want[0]["text"])


def test_pieces_of_a_call(shared: Engine) -> None:
    """The first piece of a call has its name and id, the others have arguments, under one index;
    usage is on the last chunk, which says that it is."""
    llm = bound(ChatAgentKV(model="tiny", engine=shared, max_tokens=100), "call")
    chunks = [c for c in llm.stream("x") if isinstance(c, AIMessageChunk)]
    pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
    assert pieces[0]["name"] == "find"
    assert pieces[0]["id"]
    assert len(pieces) > 5
    assert all(p["name"] is None and p["id"] is None for p in pieces[1:])
    assert {p["index"] for p in pieces} == {pieces[0]["index"]}
    assert all(c.content == "" for c in chunks)
    assert [c.usage_metadata is not None for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [c.chunk_position for c in chunks] == [None] * (len(chunks) - 1) + ["last"]
    whole = joined(chunks)
    assert whole.tool_calls[0]["id"] == pieces[0]["id"]
    assert set(whole.tool_calls[0]["args"]) <= {"place", "urgent"}


def test_v1_output_has_call_blocks(shared: Engine) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=100, output_version="v1")
    for message in (PATHS["invoke"](bound(llm, "call")), PATHS["stream"](bound(llm, "call"))):
        assert [b["type"] for b in message.content_blocks] == ["tool_call"]
        assert message.content_blocks[0]["args"] == message.tool_calls[0]["args"]  # type: ignore[typeddict-item]


# -- answers that only some models give, from a client that says what it is told to -------------


class Told:
    """A client whose one answer is given; keeps the requests."""

    def __init__(self, *deltas: ChatDelta, choice: ReplyChoice) -> None:
        report = CacheReport(prompt_tokens=10, cached_tokens=4, completion_tokens=5)
        reply = ChatReply(id="1", model="told", choices=(choice,), report=report)
        self.deltas = (*deltas, ChatDelta(reply=reply))
        self.reply = reply
        self.requests: list[CallRequest] = []

    def send(self, request: CallRequest) -> ChatReply:
        self.requests.append(request)
        return self.reply

    def stream(self, request: CallRequest) -> Iterator[ChatDelta]:
        self.requests.append(request)
        yield from self.deltas

    async def asend(self, request: CallRequest) -> ChatReply:
        return self.send(request)

    async def astream(self, request: CallRequest) -> AsyncIterator[ChatDelta]:
        self.requests.append(request)
        for delta in self.deltas:
            yield delta


def telling(client: Told, **settings: Any) -> ChatAgentKV:
    llm = ChatAgentKV(model="told", base_url="http://127.0.0.1:9", **settings)
    llm._clients["told"] = client  # type: ignore[assignment]
    return llm


def thinking() -> Told:
    calls = (ToolCall("a", "find", '{"place": "Bonn"}'), ToolCall("b", "find", "{}"))
    return Told(
        ChatDelta(reasoning="Hm, "),
        ChatDelta(reasoning="well."),
        ChatDelta(text="I will "),
        ChatDelta(text="look."),
        ChatDelta(calls=(CallDelta(0, "a", "find"), CallDelta(0, arguments='{"place": '))),
        ChatDelta(calls=(CallDelta(0, arguments='"Bonn"}'), CallDelta(1, "b", "find", "{}"))),
        choice=ReplyChoice(
            index=0,
            text="I will look.",
            reasoning="Hm, well.",
            finish_reason="tool_calls",
            tool_calls=calls,
            opener_scores=(-0.5, -1.25),
        ),
    )


@pytest.mark.parametrize("version", [None, "v1"])
@pytest.mark.parametrize("path", PATHS)
def test_reasoning_text_and_two_calls(path: str, version: str | None) -> None:
    message = PATHS[path](telling(thinking(), output_version=version))
    assert message.text == "I will look."
    assert [(c["id"], c["name"], c["args"]) for c in message.tool_calls] == [
        ("a", "find", {"place": "Bonn"}),
        ("b", "find", {}),
    ]
    assert not message.invalid_tool_calls
    kinds = [block["type"] for block in message.content_blocks]
    assert kinds == ["reasoning", "text", "tool_call", "tool_call"]
    assert message.content_blocks[0]["reasoning"] == "Hm, well."  # type: ignore[typeddict-item]
    assert message.response_metadata["agentkv"]["tool_choice"] == {
        "policy": "score",
        "opener": -0.5,
        "text": -1.25,
    }


@pytest.mark.parametrize("path", PATHS)
def test_a_call_that_broke_off_is_no_call(path: str) -> None:
    """Core's own merging of pieces would complete it by guess, and an agent would run it."""
    arguments = '{"place": "Bonn", "urg'
    client = Told(
        ChatDelta(calls=(CallDelta(0, "a", "find", arguments),)),
        choice=ReplyChoice(
            index=0,
            text="",
            finish_reason="length",
            tool_calls=(ToolCall("a", "find", arguments),),
        ),
    )
    message = PATHS[path](telling(client))
    assert message.response_metadata["cut_tool_calls"] == {"a": arguments}
    if path not in ("stream", "astream"):
        # A caller who adds the chunks up gets what core makes of them, and the note above.
        assert message.tool_calls == []
        (broken,) = message.invalid_tool_calls
        assert (broken["id"], broken["name"], broken["args"]) == ("a", "find", arguments)


def test_arguments_that_are_no_object_are_no_call() -> None:
    for arguments in ("[1]", '"x"', "{'a': 1}", "{" * 3000):
        calls = (ToolCall("a", "find", arguments), ToolCall("b", "find", ""))
        choice = ReplyChoice(index=0, text="", finish_reason="tool_calls", tool_calls=calls)
        message = telling(Told(choice=choice)).invoke("x")
        assert [c["id"] for c in message.invalid_tool_calls] == ["a"]
        assert message.invalid_tool_calls[0]["args"] == arguments
        assert [(c["id"], c["args"]) for c in message.tool_calls] == [("b", {})]


@pytest.mark.parametrize("path", PATHS)
def test_the_thread_is_the_session_on_every_path(path: str) -> None:
    client = thinking()
    llm = telling(client)
    config: Any = {"configurable": {"thread_id": "t-1"}}
    PATHS[path](llm.with_config(config))
    PATHS[path](llm.bind(session="mine").with_config(config))
    own = telling(client, session="own")
    PATHS[path](own.with_config(config))
    PATHS[path](llm)
    assert [r.session for r in client.requests] == ["t-1", "mine", "own", None]


@pytest.mark.parametrize("path", PATHS)
def test_costs(path: str) -> None:
    """Of 10 tokens 4 were read; floats stay out of usage, which is added up over a run."""
    price = Pricing(input=3.0, output=15.0, cached=0.3)
    message = PATHS[path](telling(thinking(), price=price, report="off"))
    cost = message.response_metadata["cost"]
    assert cost["input_cost"] == pytest.approx((6 * 3.0 + 4 * 0.3) / 1e6)
    assert cost["output_cost"] == pytest.approx(5 * 15.0 / 1e6)
    assert cost["total_cost"] == pytest.approx(cost["input_cost"] + cost["output_cost"])
    assert sum(cost["input_cost_details"].values()) == pytest.approx(cost["input_cost"])
    assert cost["input_cost_details"]["cache_read"] == pytest.approx(4 * 0.3 / 1e6)
    assert "agentkv" not in message.response_metadata
    assert message.usage_metadata is not None
    assert message.usage_metadata["input_token_details"] == {"cache_read": 4, "cache_creation": 6}


def test_prices_are_checked_and_may_be_given_as_a_dict() -> None:
    with pytest.raises(ValueError, match="output"):
        Pricing(input=1, output=-1)
    price: Any = {"input": 1.0, "output": 2.0, "written": 1.25}
    made = ChatAgentKV(model="none", price=price)
    assert made.price == Pricing(input=1.0, output=2.0, written=1.25)


def test_what_a_server_does_not_say_is_not_made_up() -> None:
    """Unknown is not nothing: no count, and not a count of zero."""
    client = thinking()
    report = CacheReport(prompt_tokens=10, cached_tokens=0, cached_known=False)
    client.reply = ChatReply(id="1", model="m", choices=client.reply.choices, report=report)
    message = telling(client).invoke("x")
    assert message.usage_metadata is not None
    assert "input_token_details" not in message.usage_metadata
    assert "prompt_tokens_details" not in message.response_metadata["token_usage"]


def test_choices_reach_the_request() -> None:
    client = thinking()
    llm = telling(client)
    llm.bind_tools(
        [find], tool_choice="any", parallel_tool_calls=False, response_format=Parcel, strict=True
    ).invoke("x", tool_auto_policy="free")
    (request,) = client.requests
    assert request.tool_choice == "required"  # type: ignore[union-attr]
    assert request.parallel_tool_calls is False  # type: ignore[union-attr]
    assert request.auto_policy == "free"  # type: ignore[union-attr]
    assert request.response_format["json_schema"]["name"] == "Parcel"  # type: ignore[union-attr, index]
    assert [t["function"]["name"] for t in request.tools] == ["find"]  # type: ignore[union-attr]
