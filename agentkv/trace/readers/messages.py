"""Messages of any format into the parts of a prompt, with their kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentkv.trace.call import Part, Piece
from agentkv.trace.readers.blocks import mark_last, marker_of, pieces_of
from agentkv.trace.readers.fields import Record, dumps, items, mapping, pick, text

_ROLES = {
    "human": "user",
    "HumanMessage": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "AssistantMessage": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "function": "tool",
    "tool_response": "tool",
    "observation": "tool",
    "ipython": "tool",
    "function_call": "assistant",
    "tool_call": "assistant",
}
_LEADING = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its role in our words, its pieces, and the name that it was sent under."""

    role: str
    pieces: tuple[Piece, ...]
    name: str | None = None


def role_of(word: Any) -> str:
    """system, developer, user, assistant or tool; an unknown word stays as it is."""
    if not isinstance(word, str):
        return "user"
    return _ROLES.get(word) or _ROLES.get(word.lower()) or word.lower()


def message_of(raw: Any) -> Message:
    """A message of OpenAI, Anthropic, Bedrock, Gemini, Cohere, LangChain, OpenTelemetry, ShareGPT."""
    if isinstance(raw, (list, tuple)) and len(raw) == 2 and isinstance(raw[0], str):
        raw = {"role": raw[0], "content": raw[1]}  # ("user", "text")
    if not isinstance(raw, dict):
        return Message("user", pieces_of(raw))
    raw, word = _unwrapped(raw)
    role = role_of(word)
    pieces = [*_reasoning(raw), *_content(raw)]
    if role == "tool":
        pieces = [replace(p, kind="tool_result", key="") if p.kind == "text" else p for p in pieces]
    pieces += _calls(raw, pieces)
    if pieces and all(p.kind == "tool_result" for p in pieces):
        role = "tool"  # Anthropic, Bedrock and Gemini send results under the user's role
    name = text(raw.get("name"))
    if name:
        pieces = [replace(p, name=name, key="") if p.name is None else p for p in pieces]
    marker = marker_of(raw)
    if marker is not None:
        mark_last(pieces, marker)
    return Message(role, tuple(pieces), name)


def _unwrapped(raw: Record) -> tuple[Record, Any]:
    """LangChain's serialised forms opened; the word that names the role."""
    if isinstance(raw.get("kwargs"), dict) and isinstance(raw.get("id"), list) and raw["id"]:
        inner = raw["kwargs"]  # {"lc": 1, "type": "constructor", "id": [.., "HumanMessage"], ..}
        return inner, pick(inner, "role") or raw["id"][-1]
    if isinstance(raw.get("data"), dict) and "role" not in raw and "content" not in raw:
        return raw["data"], pick(raw["data"], "role") or raw.get("type")
    if isinstance(raw.get("message"), dict) and "role" in raw["message"]:
        return raw["message"], raw["message"]["role"]  # OpenInference and choices
    return raw, pick(raw, "role", "from", "type", "sender")


def _reasoning(raw: Record) -> list[Piece]:
    extra = mapping(raw.get("additional_kwargs"))
    for value in (
        pick(raw, "reasoning_content", "reasoning", "thinking"),
        pick(extra, "reasoning_content", "reasoning"),
        raw.get("reasoning_details"),
    ):
        if isinstance(value, str) and value:
            return [Piece("reasoning", value)]
        if isinstance(value, (list, dict)) and value:
            blocks = value if isinstance(value, list) else [{"type": "reasoning", **value}]
            return [replace(p, kind="reasoning", key="") for p in pieces_of(blocks)]
    return []


def _content(raw: Record) -> list[Piece]:
    content = pick(raw, "content", "contents", "parts", "value")
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        content = content["parts"]
    pieces = list(pieces_of(content))
    if refusal := text(raw.get("refusal")):
        pieces.append(Piece("text", refusal))
    if isinstance(audio := raw.get("audio"), dict):
        pieces += pieces_of({"type": "audio", **audio})
    images = items(raw.get("images"))  # Ollama's own protocol
    return pieces + list(pieces_of([{"type": "image", "data": i} for i in images]))


def _calls(raw: Record, have: Sequence[Piece]) -> list[Piece]:
    """Calls beside the content; LangChain also has them in it, and they count once."""
    extra = mapping(raw.get("additional_kwargs"))
    if any(p.kind == "tool_call" for p in have):
        return []
    for calls in (extra.get("tool_calls"), raw.get("tool_calls")):
        if isinstance(calls, list) and calls:
            return [p for c in calls if isinstance(c, dict) for p in _call(c)]
    legacy = pick(raw, "function_call") or extra.get("function_call")
    return list(_call(legacy)) if isinstance(legacy, dict) else []


def _call(call: Record) -> tuple[Piece, ...]:
    spec = mapping(pick(call, "function", "custom")) or call
    arguments = pick(spec, "arguments", "args", "input")
    shown = (
        arguments if isinstance(arguments, str) else dumps({} if arguments is None else arguments)
    )
    return (Piece("tool_call", shown, text(spec.get("name"))),)


def parts_of(messages: Sequence[Message]) -> tuple[Part, ...]:
    """The messages as parts `messages[i]`, in order.

    Leading system and developer messages are instructions (examples, where their name says so), the
    last message of the user is the question, and all the rest is history.
    """
    last = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    parts: list[Part] = []
    leading = True
    for index, message in enumerate(messages):
        leading = leading and message.role in _LEADING
        if leading:
            example = (message.name or "").startswith("example")
            kind = "examples" if example else "instructions"
        else:
            kind = "question" if index == last else "history"
        parts.append(Part(f"messages[{index}]", kind, message.role, message.pieces))
    return tuple(parts)
