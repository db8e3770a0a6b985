"""Mooncake's traces: hashes of blocks of 512 tokens, no text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agentkv.engine.types import IntArray
from agentkv.trace.call import Call, Usage, Where
from agentkv.trace.readers.exchange import NoRequest
from agentkv.trace.readers.fields import Record, count, items, session_of, text
from agentkv.trace.readers.reading import Reading

NAME = "mooncake"

BLOCK = 512
"""Tokens of a block, as the trace's own description says; a line may say or show otherwise."""


def matches(record: Record) -> bool:
    return isinstance(record.get("hash_ids"), list) and "input_length" in record


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    length = count(record.get("input_length"))
    size = count(record.get("block_size")) or _block_size(length, len(record["hash_ids"]))
    when = record.get("timestamp")
    yield Call(
        where=where,
        model=text(record.get("model")) or "",
        provider="mooncake",
        time=float(when) / 1000.0 if isinstance(when, (int, float)) else None,
        session=session_of(record),
        usage=Usage(completion=count(record.get("output_length"))),
        blocks=block_ids(items(record["hash_ids"])),
        block_size=size,
        length=length if length is not None else size * len(record["hash_ids"]),
    )


def _block_size(length: int | None, blocks: int) -> int:
    """512, unless the length cannot be that many blocks and fits another power of two."""
    if length is None or -(-length // BLOCK) == blocks:
        return BLOCK
    fits = (s for s in (16, 32, 64, 128, 256, 1024, 2048) if -(-length // s) == blocks)
    return next(fits, BLOCK)


def block_ids(ids: list[object]) -> IntArray:
    """The ids as int32; raises NoRequest where they are none.

    Traces that give full hashes of 64 bits are folded: equal stays equal, and two different ids
    become equal once in 4 billion.
    """
    try:
        wide = np.asarray(ids)
        if wide.size and (wide.dtype.kind not in "iu" or wide.ndim != 1):
            raise NoRequest("its hash_ids are not whole numbers")
        if wide.size and not -(2**31) <= int(wide.min()) <= int(wide.max()) < 2**31:
            mixed = wide.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            wide = (mixed >> np.uint64(32)).astype(np.uint32).view(np.int32)
        return wide.astype(np.int32)
    except (ValueError, TypeError, OverflowError):
        raise NoRequest("its hash_ids are not whole numbers") from None
