"""LangChain messages as OpenAI-style dicts, so that one conversation always gives the same bytes.

A framework hands the same message over in many forms: content as text, or as blocks of one of three
families (OpenAI's, Anthropic's, LangChain's v1 blocks), with ids that are new in every run. What the
model would read is the same, so what is sent must be the same, or the next turn loses its prefix:

- text blocks are joined as they stand; block ids, indices and cache markers are dropped;
- a tool call that stands in the content and in `tool_calls` is sent once;
- reasoning that this model gave is sent as `reasoning_content`, in whichever of its two forms it
  was kept (the template decides whether earlier reasoning is rendered); another provider's signed
  thoughts are dropped;
- message and run ids are never sent (the id of a tool call is: it names the call that a result
  belongs to, and is not rendered).

Core's own `convert_to_openai_messages` joins text with a line break where `message.text` joins with
nothing, and leaves v1 tool-call blocks in the content, so it is not used here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from agentkv.client.errors import InvalidCall, NotSupported
from agentkv.langchain.usage import PROVIDER
from agentkv.prompt.marks import KEY, mark_of

_TEXT = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_THOUGHT = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_CALLS = ("tool_use", "tool_call", "function_call", "tool_call_chunk", "invalid_tool_call")
_IGNORED = ("cachePoint", "cache_point", "citations", "input_json_delta")


def to_dicts(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """The messages in order. Raises `InvalidCall` for content that is not text, naming the place."""
    out: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        out.extend(_convert(message, f"messages[{index}]"))
    return out


def _convert(message: BaseMessage, where: str) -> Iterator[dict[str, Any]]:
    match message:
        case RemoveMessage():
            raise InvalidCall(f"{where} is a RemoveMessage, which is an order to a graph's state.")
        case SystemMessage():
            role = message.additional_kwargs.get("__openai_role__", "system")
            yield _named({"role": role, "content": _content(message.content, where)}, message)
        case AIMessage():
            yield _assistant(message, where)
        case ToolMessage():
            yield {
                "role": "tool",
                "content": _content(message.content, where),
                "tool_call_id": message.tool_call_id,
            }
        case FunctionMessage():
            yield {"role": "tool", "content": _content(message.content, where)}
        case HumanMessage():
            yield from _user(message, where)
        case ChatMessage():
            yield _named(
                {"role": message.role, "content": _content(message.content, where)}, message
            )
        case _:
            raise InvalidCall(f"{where} is a {type(message).__name__}, which no model reads.")


def _named(out: dict[str, Any], message: BaseMessage) -> dict[str, Any]:
    if message.name:
        out["name"] = message.name
    return out


def _user(message: HumanMessage, where: str) -> Iterator[dict[str, Any]]:
    """A user message; tool results inside (Anthropic's form) are messages of their own, ahead."""
    content = message.content
    if isinstance(content, str):
        yield _named({"role": "user", "content": content}, message)
        return
    rest: list[Any] = []
    for block in content:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            result = block.get("content") or ""
            yield {
                "role": "tool",
                "content": _content(result, where),
                "tool_call_id": str(block.get("tool_use_id") or ""),
            }
        else:
            rest.append(block)
    if rest or not content:
        yield _named({"role": "user", "content": _content(rest, where)}, message)


def _assistant(message: AIMessage, where: str) -> dict[str, Any]:
    calls = [_call(c.get("id"), c["name"], c["args"]) for c in message.tool_calls]
    calls.extend(
        _call(c.get("id"), c.get("name") or "", c.get("args") or "")
        for c in message.invalid_tool_calls
    )
    known = {c["id"] for c in calls}
    content: list[Any] = []
    blocks = [message.content] if isinstance(message.content, str) else message.content
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind not in _CALLS:
            content.append(block)
            continue
        assert isinstance(block, Mapping)
        call_id = str(block.get("call_id") or block.get("id") or "")
        if call_id not in known and (block.get("name") or not known):
            # Only in the content: another integration made this message.
            args = block.get("input", block.get("args", block.get("arguments")))
            calls.append(_call(call_id, str(block.get("name") or ""), args))
            known.add(call_id)
    if not calls:
        calls = [_raw(c) for c in message.additional_kwargs.get("tool_calls") or ()]
    text = _content(content, where)
    out: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        out["content"] = text or None
        out["tool_calls"] = calls
    if reasoning := _reasoning(message):
        out["reasoning_content"] = reasoning
    return _named(out, message)


def _reasoning(message: AIMessage) -> str:
    """What this model thought, as an answer (or a checkpoint of it) keeps it."""
    if message.response_metadata.get("model_provider", PROVIDER) != PROVIDER:
        return ""
    kept = message.additional_kwargs.get("reasoning_content")
    if isinstance(kept, str):
        return kept
    blocks = message.content if isinstance(message.content, list) else []
    return "".join(
        block["reasoning"]
        for block in blocks
        if isinstance(block, Mapping)
        and block.get("type") == "reasoning"
        and isinstance(block.get("reasoning"), str)
    )


def _call(call_id: str | None, name: str, args: Any) -> dict[str, Any]:
    text = args if isinstance(args, str) else json.dumps(args or {}, ensure_ascii=False)
    return {
        "id": call_id or "",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def _raw(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    return _call(call.get("id"), str(function.get("name") or ""), function.get("arguments"))


def _content(content: Any, where: str) -> str | list[dict[str, Any]]:
    """Content as one string, or as parts where one of them is marked."""
    parts = list(_parts([content] if isinstance(content, str) else content, where))
    if any(KEY in part for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def _parts(blocks: Iterable[Any], where: str) -> Iterator[dict[str, Any]]:
    for i, block in enumerate(blocks):
        if isinstance(block, str):
            if block:
                yield {"type": "text", "text": block}
            continue
        if not isinstance(block, Mapping):
            raise InvalidCall(f"{where}.content[{i}] is a {type(block).__name__}, not a block.")
        kind = block.get("type", "text")
        if kind == "non_standard" and isinstance(block.get("value"), Mapping):
            block = block["value"]
            kind = block.get("type")
        if kind in _TEXT:
            text = block.get(_TEXT[kind])
            if not isinstance(text, str):
                raise InvalidCall(f"{where}.content[{i}] has no text.")
            part: dict[str, Any] = {"type": "text", "text": text}
            mark = mark_of(block)
            if mark is not None:
                part[KEY] = dict(mark)
            yield part
        elif kind == "json" and "json" in block:
            yield {"type": "text", "text": json.dumps(block["json"], ensure_ascii=False)}
        elif kind in _THOUGHT or kind in _IGNORED:
            continue
        else:
            raise NotSupported(
                f"{where}.content[{i}] is a block of type {kind!r}; the model reads text only."
            )
