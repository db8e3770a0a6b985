"""One conversation, one form of bytes, however a framework spells it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.content import create_text_block

from agentkv.client.errors import InvalidCall, NotSupported
from agentkv.langchain.messages import to_dicts
from agentkv.prompt import volatile

CALL = {"name": "find", "args": {"b": "né", "a": 1}, "id": "toolu_1", "type": "tool_call"}
WIRE_CALL = {
    "id": "toolu_1",
    "type": "function",
    "function": {"name": "find", "arguments": '{"b": "né", "a": 1}'},
}


def one(message: BaseMessage) -> dict[str, Any]:
    (out,) = to_dicts([message])
    return out


def test_roles() -> None:
    got = to_dicts(
        [
            SystemMessage("s"),
            SystemMessage("d", additional_kwargs={"__openai_role__": "developer"}),
            HumanMessage("h", name="ann"),
            AIMessage("a"),
            ToolMessage("t", tool_call_id="1"),
            FunctionMessage(content="f", name="g"),
            ChatMessage(content="c", role="critic"),
        ]
    )
    assert got == [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "h", "name": "ann"},
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "t", "tool_call_id": "1"},
        {"role": "tool", "content": "f"},
        {"role": "critic", "content": "c"},
    ]


@pytest.mark.parametrize(
    "content",
    [
        ["one ", "two"],
        [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}],
        [{"type": "text", "text": "one two", "index": 0}],
        [{"type": "text", "text": "one two", "cache_control": {"type": "ephemeral"}}],
        [create_text_block("one "), create_text_block("two")],
        [{"type": "output_text", "text": "one two", "annotations": []}],
    ],
)
@pytest.mark.parametrize("kind", [HumanMessage, AIMessage, SystemMessage])
def test_text_and_blocks_are_the_same(kind: Any, content: list[Any]) -> None:
    assert one(kind(content=content)) == one(kind(content="one two"))


def test_ids_of_messages_are_never_sent() -> None:
    assert one(AIMessage("x", id="run-1")) == one(AIMessage("x", id="lc_2"))


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[CALL]),
        AIMessage([], tool_calls=[CALL]),
        # Anthropic's blocks, which stand in the content as well.
        AIMessage(
            [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "toolu_1", "name": "find", "input": CALL["args"]},
            ],
            tool_calls=[CALL],
        ),
        # The same without `tool_calls`: another integration made it.
        AIMessage([{"type": "tool_use", "id": "toolu_1", "name": "find", "input": CALL["args"]}]),
        # v1 blocks.
        AIMessage([{"type": "tool_call", **CALL}], tool_calls=[CALL]),
        # Another provider's thoughts.
        AIMessage(
            [{"type": "reasoning", "reasoning": "hm"}],
            tool_calls=[CALL],
            response_metadata={"model_provider": "openai"},
        ),
        # What a stream left behind.
        AIMessageChunk(
            content=[{"type": "text", "text": "", "index": 0}],
            tool_call_chunks=[
                {"name": "find", "args": '{"b": "né", "a": 1}', "id": "toolu_1", "index": 0}
            ],
        ),
        AIMessage("", additional_kwargs={"tool_calls": [WIRE_CALL]}),
    ],
)
def test_a_tool_call_is_sent_once_in_one_form(message: AIMessage) -> None:
    assert one(message) == {"role": "assistant", "content": None, "tool_calls": [WIRE_CALL]}


def test_a_broken_call_is_sent_as_it_was() -> None:
    broken = {"name": "find", "args": '{"a": ', "id": "1", "error": None}
    got = one(AIMessage("x", invalid_tool_calls=[{**broken, "type": "invalid_tool_call"}]))
    assert got["content"] == "x"
    assert got["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"a": '}


def test_reasoning_is_sent_in_one_form() -> None:
    """`invoke` keeps it beside the content, an event stream and v1 output in it."""
    want = {"role": "assistant", "content": "x", "reasoning_content": "hm, well"}
    for message in (
        AIMessage("x", additional_kwargs={"reasoning_content": "hm, well"}),
        AIMessage(
            [
                {"type": "reasoning", "reasoning": "hm, ", "index": 0},
                {"type": "reasoning", "reasoning": "well"},
                {"type": "text", "text": "x", "index": 1},
            ],
            response_metadata={"model_provider": "agentkv"},
        ),
    ):
        assert one(message) == want


def test_anthropic_tool_results_become_tool_messages() -> None:
    got = to_dicts(
        [
            HumanMessage(
                [
                    {"type": "tool_result", "tool_use_id": "1", "content": "green"},
                    {"type": "tool_result", "tool_use_id": "2", "content": [{"text": "red"}]},
                    {"type": "text", "text": "Go on."},
                ]
            )
        ]
    )
    assert [(m["role"], m["content"]) for m in got] == [
        ("tool", "green"),
        ("tool", "red"),
        ("user", "Go on."),
    ]


def test_tool_results_as_text_blocks_and_json() -> None:
    blocks: list[Any] = [{"type": "text", "text": "a"}, {"type": "json", "json": {"k": "é"}}]
    assert one(ToolMessage(blocks, tool_call_id="1"))["content"] == 'a{"k": "é"}'
    assert one(ToolMessage("boom", tool_call_id="1", status="error"))["content"] == "boom"


def test_marks_survive() -> None:
    mark = volatile("now", name="clock")
    got = one(SystemMessage(["Be kind.", mark]))
    assert got["content"] == [{"type": "text", "text": "Be kind."}, mark]


def test_what_is_no_text_is_refused_with_its_place() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    with pytest.raises(NotSupported, match=r"messages\[1\]\.content\[0\].*image_url"):
        to_dicts([HumanMessage("x"), HumanMessage([image])])
    with pytest.raises(InvalidCall, match="RemoveMessage"):
        to_dicts([RemoveMessage(id="1")])
