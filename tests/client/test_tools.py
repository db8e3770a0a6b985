"""Tools and formats through the clients: the same in process and over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentkv.client import ChatReply, ChatRequest, Client, HttpClient, InProcessClient
from agentkv.client import errors as e
from agentkv.engine.types import Grammar, SamplingParams

if TYPE_CHECKING:
    from agentkv.engine import Engine

QUESTION = {"role": "user", "content": "Where is order 12-345?"}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Does {name}.", "parameters": schema},
    }


TOOLS = (tool("find", order={"enum": ["12-345"]}), tool("cancel"))
FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "state",
        "schema": {
            "type": "object",
            "properties": {"state": {"enum": ["sent", "lost"]}},
            "required": ["state"],
            "additionalProperties": False,
        },
    },
}
FIND = {"type": "function", "function": {"name": "find"}}
ASK = ChatRequest(
    messages=(QUESTION,),
    tools=TOOLS,
    tool_choice=FIND,
    parallel_tool_calls=False,
    params=SamplingParams(temperature=0, max_tokens=120),
)


@pytest.fixture(params=["inproc", "http"])
def client(
    request: pytest.FixtureRequest, shared: Engine, serve: Callable[..., str]
) -> Iterator[Client]:
    made: Client = (
        InProcessClient(shared) if request.param == "inproc" else HttpClient(serve(shared))
    )
    yield made
    made.close()


def checked(deltas: list[Any]) -> ChatReply:
    """The reply at the end of a stream, which its deltas must add up to."""
    reply = deltas[-1].reply
    assert isinstance(reply, ChatReply)
    for choice in reply.choices:
        mine = [d for d in deltas[:-1] if d.index == choice.index]
        assert "".join(d.text for d in mine) == choice.text
        assert "".join(d.reasoning for d in mine) == choice.reasoning
        assert [d.finish_reason for d in mine if d.finish_reason] == [choice.finish_reason]
        for i, call in enumerate(choice.tool_calls):
            pieces = [c for d in mine for c in d.calls if c.index == i]
            assert (pieces[0].id, pieces[0].name) == (call.id, call.name)
            assert pieces[0].arguments == ""
            assert all(p.id is None and p.name is None for p in pieces[1:])
            assert "".join(p.arguments for p in pieces) == call.arguments
    return reply


def said(reply: ChatReply) -> list[Any]:
    """What a reply says, without ids."""
    return [
        (c.text, c.reasoning, [(t.name, t.arguments) for t in c.tool_calls], c.finish_reason)
        for c in reply.choices
    ]


def four_ways(client: Client, request: ChatRequest) -> ChatReply:
    whole = client.send(request)
    streamed = checked(list(client.stream(request)))

    async def both() -> tuple[ChatReply, ChatReply]:
        one = await client.asend(request)
        return one, checked([d async for d in client.astream(request)])

    for other in (streamed, *asyncio.run(both())):
        assert said(other) == said(whole)
        assert other.report.prompt_tokens == whole.report.prompt_tokens
        assert other.report.completion_tokens == whole.report.completion_tokens
        assert other.report.cached_tokens == whole.report.prompt_tokens - 1
    return whole


def answered(reply: ChatReply, content: Any = None) -> list[dict[str, Any]]:
    """The turn of a reply and the result of its call, as a client sends them back."""
    (call,) = reply.tool_calls
    function = {"name": call.name, "arguments": json.dumps(json.loads(call.arguments), indent=1)}
    turn = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }
    return [turn, {"role": "tool", "tool_call_id": call.id, "content": "It was sent."}]


@pytest.mark.parametrize(
    "request_",
    [
        ASK,
        replace(ASK, tool_choice="any", parallel_tool_calls=None),
        replace(ASK, tool_choice=None, auto_policy="score"),
        replace(ASK, tool_choice="none", params=SamplingParams(temperature=0, max_tokens=9)),
        replace(ASK, tools=(), tool_choice=None, response_format=FORMAT),
        replace(ASK, params=SamplingParams(temperature=1, seed=2, n=2, max_tokens=120)),
    ],
)
def test_four_ways_one_answer(client: Client, request_: ChatRequest) -> None:
    reply = four_ways(client, request_)
    for choice in reply.choices:
        if choice.tool_calls:
            assert choice.finish_reason == "tool_calls" and choice.text == ""
            for call in choice.tool_calls:
                json.loads(call.arguments)
        elif request_.response_format is not None:
            assert set(json.loads(choice.text)) == {"state"}
            assert choice.finish_reason == "stop"
    if request_.auto_policy == "score":
        scores = reply.choices[0].opener_scores
        assert scores is not None and all(s <= 0 for s in scores)
    elif request_.tool_choice in ("required", "none", FIND):
        assert reply.choices[0].opener_scores is None


@pytest.mark.parametrize("streaming", [False, True])
def test_a_round_trip_reuses_every_token_that_was_sampled(
    shared: Engine, client: Client, streaming: bool
) -> None:
    """Calls in a row, each sent back in other words than it came."""
    messages: list[dict[str, Any]] = [QUESTION]
    before = 0
    for step in range(2):
        request = replace(ASK, messages=messages, session="s")
        reply = checked(list(client.stream(request))) if streaming else client.send(request)
        if step:
            # All of the last prompt and answer; the last sampled token itself was not computed.
            assert reply.report.cached_tokens == before - 1
            assert reply.report.reason == "appended"
        before = reply.report.prompt_tokens + reply.report.completion_tokens
        messages = [*messages, *answered(reply, content=(None, [])[step])]
    warm = client.send(replace(ASK, messages=messages))
    assert warm.report.cached_tokens == before - 1
    shared.flush()
    cold = client.send(replace(ASK, messages=messages))
    assert cold.report.cached_tokens == 0 and said(cold) == said(warm)


def test_a_raw_grammar_in_process_and_its_thoughts(shared: Engine) -> None:
    """What the client reads does not depend on how the answer came to be."""
    client = InProcessClient(shared)
    call = '<tool_call>\n{"name": "find", "arguments": {"order": "12-345"}}\n</tool_call>'
    params = SamplingParams(temperature=0, max_tokens=120, grammar=Grammar("regex", "Well[.]"))
    reply = client.send(ChatRequest(messages=(QUESTION,), params=params))
    assert (reply.text, reply.finish_reason) == ("Well.", "stop")
    with pytest.raises(e.InvalidCall) as found:
        client.send(replace(ASK, params=params))
    assert found.value.param == "response_format"
    text = replace(ASK, tool_choice="none", params=SamplingParams(temperature=0, max_tokens=120))
    written = Grammar("lark", f"start: {json.dumps(call)}")
    reply = client.send(replace(text, params=replace(params, grammar=written)))
    assert reply.text == call and not reply.tool_calls, "a call that may not be is text"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": "required", "tools": ()}, "tool_choice"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "no"}}},
            "tool_choice",
        ),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"tools": (tool("x", a={"contains": {}}),), "tool_choice": None}, "tools"),
        ({"auto_policy": "dice"}, "auto_policy"),
        ({"params": SamplingParams(max_tokens=3)}, "max_tokens"),
    ],
)
def test_errors_name_their_field_either_way(
    client: Client, change: dict[str, Any], param: str
) -> None:
    wrong = replace(ASK, **change)
    for call in (
        lambda: client.send(wrong),
        lambda: list(client.stream(wrong)),
        lambda: asyncio.run(client.asend(wrong)),
    ):
        with pytest.raises(e.InvalidCall) as found:
            call()
        assert found.value.param == param
        assert not e.retryable(found.value)


def test_closing_a_stream_of_calls_aborts_it_and_remembers_nothing(
    shared: Engine, client: Client
) -> None:
    stream = client.stream(ASK)
    for delta in stream:
        if delta.calls:
            break
    stream.close()  # type: ignore[attr-defined]
    import time

    end = time.monotonic() + 5
    while shared.stats()["num_requests_running"]:
        assert time.monotonic() < end
        time.sleep(0.01)
    again = client.send(ASK)
    assert again.finish_reason == "tool_calls"
    assert again.report.cached_tokens > 0, "what was computed stays"
