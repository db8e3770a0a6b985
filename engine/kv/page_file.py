"""The bytes of one group, in a file or in a value of a server.

    magic | u16 version | u32 size | header (JSON) | ids int32[n] | digests 16 x pages |
    BLAKE3 of all that | pages

The header is `Layout.facts`. Numbers are little-endian. Imports no torch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from blake3 import blake3

from agentkv.engine.types import IntArray

MAGIC = b"agentkv\x00"
VERSION = 1
DIGEST = 16
"""Bytes of BLAKE3 that are kept of a page (128 bits find damage; they are no signature)."""

MOST_HEADER = 1 << 16
MOST_TOKENS = 1 << 26

_FIXED = len(MAGIC) + 6


@dataclass(frozen=True, slots=True)
class Head:
    """What comes before the pages. `offset`: bytes up to the first page."""

    facts: dict[str, Any]
    ids: IntArray
    digests: bytes
    offset: int

    @property
    def pages(self) -> int:
        return len(self.digests) // DIGEST

    @property
    def size(self) -> int:
        """Bytes of the whole group."""
        return self.offset + self.pages * int(self.facts["page_bytes"])

    def check(self, page: int, data: bytes | memoryview) -> None:
        """Raise `ValueError` unless these are the bytes of page number `page`."""
        if len(data) != self.facts["page_bytes"]:
            raise ValueError("the file is shorter than its header says")
        digest = self.digests[page * DIGEST : (page + 1) * DIGEST]
        if blake3(data).digest(length=DIGEST) != digest:
            raise ValueError(f"page {page} does not have the checksum it was written with")


def write_head(facts: dict[str, Any], ids: IntArray, pages: Sequence[memoryview]) -> bytes:
    """Everything that goes before `pages`. `facts`: what `Layout.facts` makes."""
    header = json.dumps(facts, sort_keys=True).encode()
    digests = b"".join(blake3(page).digest(length=DIGEST) for page in pages)
    own = np.ascontiguousarray(ids, dtype="<i4").tobytes()
    head = MAGIC + struct.pack("<HI", VERSION, len(header)) + header + own + digests
    return head + blake3(head).digest(length=DIGEST)


def read_head(read: Callable[[int], bytes]) -> Head:
    """Read and verify what comes before the pages; `read(n)` gives the next `n` bytes, or fewer at
    the end. Raises `ValueError` when it is no group, of another version, or damaged."""
    fixed = read(_FIXED)
    if fixed[: len(MAGIC)] != MAGIC or len(fixed) != _FIXED:
        raise ValueError("this is no file of a KV cache")
    version, length = struct.unpack("<HI", fixed[len(MAGIC) :])
    if version != VERSION:
        raise ValueError(f"format version {version}, this is {VERSION}")
    if length > MOST_HEADER:
        raise ValueError("the header is longer than a header can be")
    header = read(length)
    try:
        facts = json.loads(header)
        tokens, page_size, size = (facts[k] for k in ("tokens", "page_size", "page_bytes"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("the header cannot be read") from error
    if not all(isinstance(n, int) and n > 0 for n in (tokens, page_size, size)) or (
        tokens > MOST_TOKENS or tokens % page_size
    ):
        raise ValueError("the header's sizes are none")
    pages = tokens // page_size
    body = read(4 * tokens + DIGEST * pages)
    if blake3(fixed + header + body).digest(length=DIGEST) != read(DIGEST):
        raise ValueError("the header does not have the checksum it was written with")
    ids = np.frombuffer(body[: 4 * tokens], dtype="<i4").astype(np.int32)
    offset = len(fixed) + length + len(body) + DIGEST
    return Head(facts, ids, body[4 * tokens :], offset)
