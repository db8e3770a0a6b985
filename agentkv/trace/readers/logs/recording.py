"""agentkv's own recordings: of `serve --record` and of the LangChain handler.

Without the text: spans with digests, whose pieces are redacted, and chained digests of blocks, which
a replay can use like those of a hash trace. With it: the request, and the spans as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agentkv.engine.types import IntArray
from agentkv.trace.call import Call, Part, Piece, Usage, Where
from agentkv.trace.readers.exchange import Facts, NoRequest, call_of
from agentkv.trace.readers.fields import (
    Record,
    canonical,
    count,
    items,
    mapping,
    seconds,
    text,
)
from agentkv.trace.readers.reading import Reading

NAME = "agentkv"


def matches(record: Record) -> bool:
    version = record.get("agentkv")
    return isinstance(version, int) and not isinstance(version, bool)


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    if record["agentkv"] != 1:
        raise NoRequest(f"a recording of version {record['agentkv']}; this release reads version 1")
    yield _call(record, where, reading)


def _call(record: Record, where: Where, reading: Reading) -> Call:
    usage = Usage(
        count(record.get("prompt_tokens")),
        count(record.get("cached_tokens")),
        count(record.get("written_tokens")),
        count(record.get("completion_tokens")),
    )
    wait = record.get("ttft_ms")
    facts = Facts(
        id=text(record.get("id")),
        time=seconds(record.get("time")),
        session=text(record.get("session")),
        user=text(record.get("user")),
        model=text(record.get("model")),
        provider=text(record.get("provider")) or "agentkv",
        error=text(record.get("error")),
        usage=usage,
        ttft_ms=float(wait) if isinstance(wait, (int, float)) else None,
    )
    if isinstance(record.get("text"), dict):
        return call_of(record["text"], where, reading, record.get("reply"), facts)
    spans = [s for s in map(_span, items(record.get("spans"))) if s is not None]
    if not spans:
        raise NoRequest("the recording has neither spans nor text")
    blocks = _blocks(record.get("blocks"))
    return Call(
        where=where,
        model=facts.model or "",
        provider=facts.provider or "agentkv",
        id=facts.id,
        time=facts.time,
        session=facts.session,
        user=facts.user,
        salt=text(record.get("salt")),
        parts=tuple(part for part, _, _ in spans),
        settings={
            k: canonical(v) for k, v in mapping(record.get("settings")).items() if v is not None
        },
        usage=usage,
        error=facts.error,
        ttft_ms=facts.ttft_ms,
        blocks=blocks,
        block_size=(count(record.get("block_size")) or 0) if blocks is not None else 0,
        length=usage.prompt or max(end for _, _, end in spans),
        spans=tuple((part.name, start, end) for part, start, end in spans),
    )


def _span(raw: object) -> tuple[Part, int, int] | None:
    """`[name, kind, role, start, end, digest, items]` as a part whose pieces are redacted."""
    if not isinstance(raw, list) or len(raw) < 6:
        return None
    name, kind, role, start, end, key = raw[:6]
    start, end = count(start), count(end)
    if not isinstance(name, str) or start is None or end is None or end < start:
        return None
    inner = items(raw[6]) if len(raw) > 6 else []
    pieces = tuple(p for p in (_piece(i, str(kind)) for i in inner) if p is not None)
    if not pieces:
        pieces = (_redacted("text", None, str(key), end - start),)
    return Part(name, str(kind), text(role), pieces), start, end


def _piece(raw: object, kind: str) -> Piece | None:
    """An item of a span: its digest, or `[name, digest]` of a tool."""
    word = "tool" if kind == "tools" else "text"
    if isinstance(raw, str):
        return _redacted(word, None, raw, 0)
    if isinstance(raw, list) and len(raw) >= 2 and isinstance(raw[1], str):
        size = count(raw[2]) if len(raw) > 2 else None
        return _redacted(word, text(raw[0]), raw[1], size or 0)
    return None


def _redacted(kind: str, name: str | None, key: str, size: int) -> Piece:
    return Piece("tool" if kind == "tool" else "text", "", name, redacted=True, key=key, size=size)


def _blocks(raw: object) -> IntArray | None:
    """Chained digests (hex) of blocks as int32, which is all that a comparison needs."""
    if not isinstance(raw, list) or not all(isinstance(d, str) for d in raw):
        return None
    try:
        return np.array([int(d[:8], 16) for d in raw], dtype=np.uint32).view(np.int32)
    except ValueError:
        return None
