"""What `agentkv trace redact` writes: calls as they are, in veiled words (`agentkv.trace.redact`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from agentkv.trace.call import Call, Part, Piece, PieceKind, Usage, Where
from agentkv.trace.readers.exchange import NoRequest
from agentkv.trace.readers.fields import Record, count, items, mapping, text
from agentkv.trace.readers.reading import Reading

NAME = "redacted"
_KINDS = frozenset(get_args(PieceKind))


def matches(record: Record) -> bool:
    return "agentkv_redacted" in record


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    version = record["agentkv_redacted"]
    if version != 1:
        raise NoRequest(f"a redacted log of version {version}; this release reads version 1")
    raw = record.get("blocks")
    usage = [count(n) for n in items(record.get("usage"))]
    time, wait = record.get("time"), record.get("ttft_ms")
    parts = tuple(_part(p) for p in items(record.get("parts")))
    if not parts and raw is None:
        raise NoRequest("neither parts nor blocks")
    yield Call(
        where=where,
        model=text(record.get("model")) or "",
        provider=text(record.get("provider")) or "openai",
        id=text(record.get("id")),
        time=float(time) if isinstance(time, (int, float)) else None,
        session=text(record.get("session")),
        user=text(record.get("user")),
        salt=text(record.get("salt")),
        parts=parts,
        settings={k: str(v) for k, v in mapping(record.get("settings")).items()},
        answer=tuple(_piece(p) for p in items(record.get("answer"))),
        usage=Usage(*usage) if len(usage) == 4 else Usage(),
        error=text(record.get("error")),
        ttft_ms=float(wait) if isinstance(wait, (int, float)) else None,
        blocks=np.array(raw, dtype=np.int32) if isinstance(raw, list) else None,
        block_size=count(record.get("block_size")) or 0,
        length=count(record.get("length")) or 0,
        spans=tuple((str(n), int(a), int(b)) for n, a, b in items(record.get("spans"))),
    )


def _part(raw: Any) -> Part:
    name, kind, role, pieces = raw
    return Part(str(name), str(kind), text(role), tuple(_piece(p) for p in items(pieces)))


def _piece(raw: Any) -> Piece:
    kind, said, name, marker = raw[:4]
    if kind not in _KINDS:
        raise NoRequest(f"no piece is of the kind {kind}")
    if said is None:
        key, size = raw[4:6]
        return Piece(kind, "", text(name), count(marker), True, str(key), int(size))
    return Piece(kind, str(said), text(name), count(marker))
