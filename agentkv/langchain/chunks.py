"""Replies and deltas as LangChain's messages and chunks, tool calls and reasoning included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from agentkv.client.base import ChatDelta, ChatReply
from agentkv.engine.text.calls.answer import CallDelta
from agentkv.engine.text.calls.answer import ToolCall as Called

REASONING = "reasoning_content"
"""The key in `additional_kwargs` under which core looks for reasoning."""
CUT = "cut_tool_calls"
"""The key in `response_metadata` that names calls which broke off; absent when none did."""


def read_arguments(text: str) -> dict[str, Any]:
    """Arguments of a call. Raises ValueError for what is no JSON object."""
    value = json.loads(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise ValueError(f"the arguments are a {type(value).__name__}, not an object")
    return value


def read_calls(calls: tuple[Called, ...]) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """The calls whose arguments can be read, and those whose arguments cannot."""
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    for call in calls:
        try:
            args = read_arguments(call.arguments)
        except (ValueError, RecursionError) as error:
            bad.append(
                invalid_tool_call(
                    name=call.name, args=call.arguments, id=call.id, error=f"no arguments: {error}"
                )
            )
        else:
            good.append(tool_call(name=call.name, args=args, id=call.id))
    return good, bad


def result(
    reply: ChatReply, usage: UsageMetadata, metadata: dict[str, Any], llm_output: dict[str, Any]
) -> ChatResult:
    """A whole reply."""
    good, bad = read_calls(reply.tool_calls)
    reasoning = reply.choices[0].reasoning if reply.choices else ""
    message = AIMessage(
        content=reply.text,
        additional_kwargs={REASONING: reasoning} if reasoning else {},
        tool_calls=good,
        invalid_tool_calls=bad,
        usage_metadata=usage,
        response_metadata=metadata,
    )
    info = {"finish_reason": reply.finish_reason}
    generation = ChatGeneration(message=message, generation_info=info)
    return ChatResult(generations=[generation], llm_output=llm_output)


class Chunks:
    """Makes the chunks of one stream.

    A call's index is its place among the blocks of the answer: text and reasoning that came before
    it count, or merging would put the call into the text's block.
    """

    def __init__(self) -> None:
        self._places: dict[str | int, int] = {}

    def _place(self, block: str | int) -> int:
        return self._places.setdefault(block, len(self._places))

    def feed(self, delta: ChatDelta) -> Iterator[ChatGenerationChunk]:
        """The chunks of a delta: none where it says nothing."""
        if delta.index:
            return
        if delta.reasoning:
            self._place("reasoning")
            yield _chunk(AIMessageChunk(content="", additional_kwargs={REASONING: delta.reasoning}))
        if delta.text:
            self._place("text")
            yield _chunk(AIMessageChunk(content=delta.text))
        pieces: dict[int, CallDelta] = {}
        for piece in delta.calls:
            # Core merges the pieces of two chunks, and not those inside one.
            before = pieces.get(piece.index, CallDelta(piece.index))
            pieces[piece.index] = CallDelta(
                index=piece.index,
                id=piece.id or before.id,
                name=piece.name or before.name,
                arguments=before.arguments + piece.arguments,
            )
        if pieces:
            made = [
                tool_call_chunk(
                    name=piece.name,
                    args=piece.arguments,
                    id=piece.id,
                    index=self._place(piece.index),
                )
                for piece in pieces.values()
            ]
            yield _chunk(AIMessageChunk(content="", tool_call_chunks=made))

    def last(
        self, reply: ChatReply, usage: UsageMetadata, metadata: dict[str, Any]
    ) -> ChatGenerationChunk:
        """The chunk that ends the stream. Usage and report are on this one only: chunks are
        summed."""
        message = AIMessageChunk(
            content="", usage_metadata=usage, response_metadata=metadata, chunk_position="last"
        )
        return _chunk(message, {"finish_reason": reply.finish_reason})


def _chunk(message: AIMessageChunk, info: dict[str, Any] | None = None) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message, generation_info=info)


def cut_calls(reply: ChatReply) -> dict[str, str]:
    """Ids of calls whose arguments cannot be read, with the text of these."""
    return {str(c["id"]): str(c["args"]) for c in read_calls(reply.tool_calls)[1]}


def settle(generated: ChatResult) -> None:
    """Move calls that broke off to `invalid_tool_calls`, in an answer put together from chunks.

    Core reads the pieces of a stream leniently: it closes what is open, and an agent would run a
    call that the model never finished.
    """
    for generation in generated.generations:
        message = generation.message
        cut = message.response_metadata.get(CUT)
        if not cut or not isinstance(message, AIMessage):
            continue
        broken = [
            Called(id=str(c["id"]), name=c["name"], arguments=cut[c["id"]])
            for c in message.tool_calls
            if c["id"] in cut
        ]
        message.tool_calls = [c for c in message.tool_calls if c["id"] not in cut]
        known = {c["id"] for c in message.invalid_tool_calls}
        _, bad = read_calls(tuple(c for c in broken if c.id not in known))
        message.invalid_tool_calls = [*message.invalid_tool_calls, *bad]
