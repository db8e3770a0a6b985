"""The parts of a request and about how many tokens each has, where no tokenizer is known.

Names, kinds and digests are those that the engine's renderer gives (`agentkv.engine.text.owners`),
so that a message has one digest in every recording.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from agentkv.engine.recording import message_digest
from agentkv.engine.text.canonical import digest
from agentkv.engine.types import IntArray, Span
from agentkv.prompt.canonical import canonical_json
from agentkv.prompt.marks import KEY

MEDIA_TOKENS = 256
"""Of an image or another part that is no text, where nothing else is known."""

_BITS = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]"
    r"| ?[^\W\d_]{1,9}|[0-9]{1,3}|\s*\n\s*|[^\S\n]+| ?[^\w\s]{1,3}|."
)


@dataclass(frozen=True, slots=True)
class RequestPart:
    """A stretch of a request that gets a span of its own."""

    name: str
    kind: str
    role: str | None
    text: str
    digest: str
    media: bool = False


def estimated(
    body: Mapping[str, Any],
) -> tuple[IntArray, tuple[Span, ...], list[tuple[str, str]]]:
    """Ids, spans and tools of a request, in the order in which most templates write them."""
    tools = [(_tool_name(tool), json_text(tool)) for tool in body.get("tools", ())]
    parts: list[RequestPart] = []
    if tools:
        text = "\n".join(text for _, text in tools)
        parts.append(
            RequestPart("tools", "tools", None, text, digest(*(text for _, text in tools)))
        )
    if "prompt" in body:
        text = body["prompt"]
        parts.append(RequestPart("prompt", "context", None, text, digest(text)))
    messages = body.get("messages", ())
    last = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    for index, message in enumerate(messages):
        kind = "question" if index == last else "history"
        if message.get("role") in ("system", "developer"):
            kind = "instructions"
        parts += message_parts(index, message, kind)
    out: list[IntArray] = []
    spans: list[Span] = []
    names: dict[str, int] = {}
    at = 0
    for part in parts:
        ids = _opaque(part.digest) if part.media else ids_of(part.text)
        if not len(ids):
            continue
        names[part.name] = names.get(part.name, 0) + 1
        again = f"#{names[part.name]}" if names[part.name] > 1 else ""
        items = tuple(name for name, _ in tools) if part.kind == "tools" and tools else ()
        spans.append(
            Span(
                name=part.name + again,
                kind=part.kind,
                start=at,
                end=at + len(ids),
                role=part.role,
                digest=part.digest,
                items=items,
            )
        )
        out.append(ids)
        at += len(ids)
    return (np.concatenate(out) if out else ids_of("")), tuple(spans), tools


def message_parts(index: int, message: Mapping[str, Any], kind: str) -> list[RequestPart]:
    """A message as parts: what has a mark or is no text has one of its own, the rest is one."""
    name, role = f"messages[{index}]", message.get("role")
    content = message.get("content") or ""
    blocks = [content] if isinstance(content, str) else content
    plain: list[str] = []
    own: list[RequestPart] = []
    place: int | None = None
    for block in blocks:
        text = block if isinstance(block, str) else block.get("text", block.get("refusal"))
        mark = block.get(KEY) if isinstance(block, Mapping) else None
        if not isinstance(text, str):
            own.append(RequestPart(name, kind, role, "", digest(json_text(block)), media=True))
        elif mark:
            called, sort = mark.get("name") or name, mark.get("kind") or kind
            own.append(RequestPart(called, sort, role, text, digest(text)))
        else:
            place = len(own) if place is None else place
            plain.append(text)
    calls = [
        (call["function"].get("name", ""), call["function"].get("arguments"))
        for call in message.get("tool_calls") or ()
        if isinstance(call.get("function"), Mapping)
    ]
    thought = message.get("reasoning_content") or ""
    text = "".join(plain)
    if text or calls or thought or not own:
        said = [thought, text, *(f"{n}({json_text(a)})" for n, a in calls)]
        rest = RequestPart(
            name, kind, role, "\n".join(filter(None, said)), message_digest(text, thought, calls)
        )
        own.insert(len(own) if place is None else place, rest)
    return own


def _tool_name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, Mapping) else tool
    named = inner.get("name") if isinstance(inner, Mapping) else getattr(inner, "name", None)
    return str(named or "")


def json_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return canonical_json(value)
    except (TypeError, ValueError):
        return json.dumps(value, ensure_ascii=False, default=str)


def ids_of(text: str) -> IntArray:
    """About as many ids as a tokenizer would give; equal text has equal ids."""
    return np.fromiter(
        (crc32(bit.encode("utf-8", "replace")) & 0x7FFFFFFF for bit in _BITS.findall(text)),
        dtype=np.int32,
    )


def _opaque(key: str) -> IntArray:
    start = crc32(key.encode()) & 0x3FFFFFFF
    return np.arange(start, start + MEDIA_TOKENS, dtype=np.int32)
