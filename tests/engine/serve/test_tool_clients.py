"""Unmodified clients that call tools: openai and langchain-openai against a real server.

What the tiny model wants to say is noise; the grammar makes it a call with the arguments that a
test expects, and the clients' own code does all the rest.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, wrap_model_call
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall
from pydantic import BaseModel, SecretStr

if TYPE_CHECKING:
    from agentkv.engine import Engine
    from tests.engine.serve.conftest import Live

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "find_order",
            "description": "Find an order.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "string", "enum": ["12-345"]}},
                "required": ["order"],
                "additionalProperties": False,
            },
        },
    }
]
QUESTION: list[Any] = [{"role": "user", "content": "Where is order 12-345?"}]
FORCED: dict[str, Any] = {
    "model": "tiny",
    "tools": TOOLS,
    "tool_choice": {"type": "function", "function": {"name": "find_order"}},
    "temperature": 0,
    "max_tokens": 120,
}
WITH_USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def tiny(shared: Engine, serve: Callable[..., Live]) -> Live:
    """A server whose engine is the suite's shared one: calls are long for this model."""
    return serve(shared)


class Mood(BaseModel):
    """How somebody feels."""

    mood: Literal["good", "bad"]
    strength: Literal[1, 2, 3]


def cached(usage: Any) -> int:
    return int(usage.prompt_tokens_details.cached_tokens)


def call_of(message: Any) -> ChatCompletionMessageFunctionToolCall:
    (call,) = message.tool_calls
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    return call


def whole_turn(client: openai.OpenAI, messages: list[Any]) -> ChatCompletion:
    return client.chat.completions.create(messages=messages, **FORCED)


def turn_from_stream(client: openai.OpenAI, messages: list[Any]) -> Any:
    """The same through the SDK's own accumulation of a stream."""
    with client.chat.completions.stream(
        messages=messages, stream_options={"include_usage": True}, **FORCED
    ) as stream:
        kinds = [event.type for event in stream]
        done = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    return done


@pytest.mark.parametrize("turn", [whole_turn, turn_from_stream])
def test_openai_round_trips_hit_everything_up_to_the_newest_message(
    tiny: Live, turn: Callable[[openai.OpenAI, list[Any]], Any]
) -> None:
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="x") as client:
        messages, known, ids = list(QUESTION), 0, set()
        for _ in range(3):
            reply = turn(client, messages)
            (choice,) = reply.choices
            assert choice.finish_reason == "tool_calls"
            assert not choice.message.content
            call = call_of(choice.message)
            assert json.loads(call.function.arguments) == {"order": "12-345"}
            assert cached(reply.usage) == max(0, known - 1)
            known = reply.usage.prompt_tokens + reply.usage.completion_tokens
            ids.add(call.id)
            messages.append(choice.message.model_dump(exclude_none=True))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "It was sent."})
        assert len(ids) == 3
        tiny.post("/flush_cache", {})
        cold = turn(client, messages[:-2])
        assert cached(cold.usage) == 0
        assert call_of(cold.choices[0].message).function == call.function, "warm equals cold"


def test_openai_async_stream_and_not(tiny: Live) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=tiny.url + "/v1", api_key="x") as client:
            whole = await client.chat.completions.create(messages=QUESTION, **FORCED)
            chunks = [
                chunk
                async for chunk in await client.chat.completions.create(
                    messages=QUESTION, **WITH_USAGE, **FORCED
                )
            ]
            parts = [
                part
                for chunk in chunks
                for choice in chunk.choices
                for part in choice.delta.tool_calls or ()
            ]
            first, *rest = parts
            assert first.id and first.type == "function" and first.function
            assert (first.function.name, first.function.arguments) == ("find_order", "")
            assert all(p.id is None and p.function and p.function.name is None for p in rest)
            text = "".join(p.function.arguments or "" for p in rest if p.function)
            assert text == call_of(whole.choices[0].message).function.arguments
            ends = [c.finish_reason for k in chunks for c in k.choices if c.finish_reason]
            assert ends == ["tool_calls"] == [whole.choices[0].finish_reason]
            assert whole.usage and cached(chunks[-1].usage) == whole.usage.prompt_tokens - 1

    asyncio.run(main())


def test_openai_parse_and_formats(tiny: Live) -> None:
    ask: dict[str, Any] = {
        "model": "tiny",
        "messages": QUESTION,
        "temperature": 0,
        "max_tokens": 120,
    }
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="x") as client:
        parsed = client.chat.completions.parse(response_format=Mood, **ask)
        mood = parsed.choices[0].message.parsed
        assert isinstance(mood, Mood)
        with client.chat.completions.stream(response_format=Mood, **ask) as stream:
            for _ in stream:
                pass
            assert stream.get_final_completion().choices[0].message.parsed == mood
        free = client.chat.completions.create(response_format={"type": "json_object"}, **ask)
        assert isinstance(json.loads(free.choices[0].message.content or ""), dict)
        called = client.chat.completions.parse(
            tools=[openai.pydantic_function_tool(Mood)], tool_choice="required", **ask
        )
        (call,) = called.choices[0].message.tool_calls or []
        assert isinstance(call.function.parsed_arguments, Mood)
        with pytest.raises(openai.BadRequestError) as wrong:
            client.chat.completions.create(
                tools=TOOLS,
                tool_choice={"type": "function", "function": {"name": "other"}},
                **ask,
            )
        assert wrong.value.param == "tool_choice"
        allowed: Any = {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "find_order"}}],
            },
        }
        reply = client.chat.completions.create(tools=TOOLS, tool_choice=allowed, **ask)
        assert call_of(reply.choices[0].message).function.name == "find_order"


@tool
def find_order(order: Literal["12-345"]) -> str:
    """Find an order."""
    return f"Order {order} was sent."


@pytest.fixture
def llm(tiny: Live) -> ChatOpenAI:
    return ChatOpenAI(
        model="tiny",
        base_url=tiny.url + "/v1",
        api_key=SecretStr("x"),
        temperature=0,
        max_completion_tokens=120,
        stream_usage=True,
    )


def test_langchain_openai_binds_tools_and_streams_their_chunks(tiny: Live, llm: ChatOpenAI) -> None:
    bound = llm.bind_tools([find_order], tool_choice="find_order", strict=True)
    said = bound.invoke("Where is it?")
    (call,) = said.tool_calls
    assert (call["name"], call["args"]) == ("find_order", {"order": "12-345"})
    assert said.response_metadata["finish_reason"] == "tool_calls"
    full: Any = None
    for chunk in bound.stream("Where is it?"):
        full = chunk if full is None else full + chunk
    assert [c["args"] for c in full.tool_calls] == [call["args"]]
    assert full.content == said.content
    assert full.response_metadata["finish_reason"] == "tool_calls"
    assert full.usage_metadata["input_token_details"]["cache_read"] == (
        said.usage_metadata["input_tokens"] - 1  # type: ignore[index]
    )

    async def also() -> None:
        again = await bound.ainvoke("Where is it?")
        assert isinstance(again, AIMessage) and again.tool_calls[0]["args"] == call["args"]
        parts = [p async for p in bound.astream("Where is it?")]
        pieces = [c["args"] or "" for p in parts for c in p.tool_call_chunks]  # type: ignore[attr-defined]
        assert json.loads("".join(pieces)) == call["args"]

    asyncio.run(also())
    history = [
        HumanMessage("Where is it?"),
        said,
        ToolMessage("It was sent.", tool_call_id=call["id"]),
    ]
    after = bound.invoke(history)
    assert said.usage_metadata and after.usage_metadata
    known = said.usage_metadata["total_tokens"]
    assert after.usage_metadata["input_token_details"]["cache_read"] == known - 1


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_langchain_openai_structured_output(llm: ChatOpenAI, method: Any) -> None:
    if method == "json_mode":
        # Any object: the schema is only in the prompt there, which this model cannot read.
        found = llm.with_structured_output(method=method, schema=None).invoke("Feel.")
        assert isinstance(found, dict)
        return
    found = llm.with_structured_output(Mood, method=method).invoke("How do you feel?")
    assert isinstance(found, Mood)
    raw = llm.with_structured_output(Mood, method=method, include_raw=True).invoke("Feel.")
    assert isinstance(raw, dict) and raw["parsing_error"] is None
    assert isinstance(raw["parsed"], Mood)


def test_an_agent_of_langchain_on_an_unmodified_model(llm: ChatOpenAI) -> None:
    """create_agent: calls its tool three times, then answers; each step reuses the step before."""

    @wrap_model_call
    def steer(request: ModelRequest, handler: Callable[[ModelRequest], Any]) -> Any:
        done = sum(isinstance(m, ToolMessage) for m in request.messages)
        return handler(request.override(tool_choice="required" if done < 3 else "none"))

    agent: Any = create_agent(llm, [find_order], middleware=[steer])
    messages = agent.invoke({"messages": [HumanMessage("Where is order 12-345?")]})["messages"]
    turns = [m for m in messages if isinstance(m, AIMessage)]
    results = [m for m in messages if isinstance(m, ToolMessage)]
    assert [bool(t.tool_calls) for t in turns] == [True, True, True, False]
    assert all(r.content == "Order 12-345 was sent." for r in results)
    assert {r.tool_call_id for r in results} == {c["id"] for t in turns for c in t.tool_calls}
    for before, after in pairwise(turns):
        assert before.usage_metadata and after.usage_metadata
        read = after.usage_metadata["input_token_details"]["cache_read"]
        assert read == before.usage_metadata["total_tokens"] - 1
