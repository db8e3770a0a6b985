"""What came back: the pieces of the answer, the counted tokens, or why it failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentkv.trace.call import Piece, Usage
from agentkv.trace.readers.blocks import pieces_of
from agentkv.trace.readers.fields import (
    Record,
    count,
    dumps,
    items,
    loads,
    mapping,
    pick,
    seconds,
    text,
)
from agentkv.trace.readers.messages import Message, message_of
from agentkv.trace.readers.stream import events_of, folded
from agentkv.trace.readers.usage import usage_of
from agentkv.trace.readers.wire.responses import answer_of

NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, as far as the log has it; `seen` is False where there was none."""

    answer: tuple[Piece, ...] = ()
    usage: Usage = NOTHING
    id: str | None = None
    model: str | None = None
    time: float | None = None
    error: str | None = None
    seen: bool = False


def reply_of(raw: Any, status: Any = None) -> Reply:
    """The reply in whatever shape it was logged: an object, its JSON, a raw or a parsed stream.

    `status`: of HTTP; 400 and above is a failure whatever the body says.
    """
    value = loads(raw)
    if isinstance(value, str):
        chunks = list(events_of(value))
        plain = {"content": value} if value else None
        value = folded(chunks) if chunks else plain
    elif isinstance(value, list):
        value = _listed(value)
    failed = _error(mapping(value), count(status))
    if not isinstance(value, dict):
        return Reply(error=failed, seen=failed is not None)
    inner = value.get("response")
    if isinstance(inner, dict) and "choices" not in value and "output" not in value:
        value = inner  # wrapped once more
    return Reply(
        answer=_answer(value),
        usage=_usage(value),
        id=text(pick(value, "id", "responseId", "response_id", "request_id")),
        model=text(pick(value, "model", "modelVersion")),
        time=seconds(pick(value, "created", "created_at", "createTime")),
        error=failed,
        seen=bool(value),
    )


def _listed(chunks: list[Any]) -> Any:
    """Chunks of a stream, or the messages or blocks of an answer."""
    streamed = ("choices", "candidates", "usageMetadata", "contentBlockDelta", "messageStart")
    first = mapping(chunks[0] if chunks else None)
    kind = str(first.get("type", ""))
    if any(k in first for k in streamed) or kind.startswith(("response.", "message_")):
        return folded(chunks)
    return {"output": chunks} if chunks else None


def _error(value: Record, status: int | None) -> str | None:
    error = value.get("error")
    if error is None and value.get("type") == "error":
        error = value
    if error is None and value.get("status") == "failed":
        error = value.get("status_details") or "failed"
    if isinstance(error, dict):
        inner = mapping(error.get("error")) or error
        said: str | None = text(pick(inner, "message", "code", "type")) or dumps(error)
    else:
        said = text(error)
    if said is None and status is not None and status >= 400:
        said = text(pick(value, "message", "detail")) or f"HTTP status {status}"
    return said


def _answer(value: Record) -> tuple[Piece, ...]:
    choices = items(value.get("choices"))
    if choices:
        first = mapping(choices[0])
        if isinstance(first.get("text"), str) and "message" not in first:
            return pieces_of(first["text"])
        return message_of(first.get("message") or first.get("delta") or {}).pieces
    candidates = items(value.get("candidates"))
    if candidates:
        return message_of(mapping(candidates[0]).get("content") or {}).pieces
    output = value.get("output")
    if isinstance(output, dict) and isinstance(output.get("message"), dict):  # Bedrock
        return message_of(output["message"]).pieces
    if isinstance(output, list):
        return _flat(answer_of(output))
    if isinstance(value.get("message"), dict):  # Cohere, Ollama
        return message_of(value["message"]).pieces
    if any(k in value for k in ("content", "tool_calls", "parts")):
        return message_of({**value, "role": "assistant"}).pieces
    return pieces_of(pick(value, "output_text", "completion", "generated_text", "text"))


def _flat(messages: Iterable[Message]) -> tuple[Piece, ...]:
    return tuple(p for m in messages for p in m.pieces)


def _usage(value: Record) -> Usage:
    usage = value.get("usage")
    if isinstance(usage, dict):
        return usage_of(usage)
    for key in ("usageMetadata", "usage_metadata", "amazon-bedrock-invocationMetrics"):
        if isinstance(value.get(key), dict):
            return usage_of(value[key])
    if isinstance(groq := mapping(value.get("x_groq")).get("usage"), dict):
        return usage_of(groq)
    timings = mapping(value.get("timings"))  # llama.cpp's own
    if "prompt_n" in timings:
        fresh, kept = count(timings["prompt_n"]), count(timings.get("cache_n"))
        whole = None if fresh is None or kept is None else fresh + kept
        return Usage(whole, kept, None, count(timings.get("predicted_n")))
    meta = mapping(value.get("meta_info"))  # SGLang's own
    if meta:
        return usage_of(meta)
    if "prompt_eval_count" in value:  # Ollama's own: counts what it computed, cached tokens unknown
        return Usage(None, None, None, count(value.get("eval_count")))
    return Usage()
