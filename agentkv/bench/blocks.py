"""Hash traces (Mooncake's format) as token ids: one seeded run of tokens for each block id.

A line gives `input_length`, `output_length` and `hash_ids`, one id for each block of 512 tokens;
equal ids mean equal text up to and including that block. Scaled down, a block id stands for
`block` tokens that depend on the id alone, and a prompt that ends inside its last block takes only
a part of it. So the sharing of the trace is kept, and its lengths shrink by `512 / block`.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from agentkv.engine.types import IntArray

TRACE_BLOCK = 512


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """One request of a hash trace: its prompt (int32 `[n]`) and how many tokens it generates."""

    prompt: IntArray
    output_tokens: int


def block_tokens(block_id: int, block: int, vocab: int, seed: int) -> IntArray:
    """The tokens that stand for one block id: int32 `[block]`."""
    # A hash of the id instead of one generator a block: 40,000 generators would cost seconds.
    at = np.arange(block, dtype=np.uint64) + np.uint64(block_id * block)
    x = (at + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(31)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(29)
    return (x % np.uint64(vocab)).astype(np.int32)


def read_block_trace(
    path: Path, *, limit: int, block: int = 8, vocab: int = 32_000, seed: int = 0
) -> list[BlockRequest]:
    """The first `limit` requests of a hash trace (JSON lines, plain or gzip), scaled to `block`."""
    scale = TRACE_BLOCK // block
    requests = []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in islice(lines, limit):
            record = json.loads(line)
            ids = record["hash_ids"]
            length = min(max(1, -(-record["input_length"] // scale)), block * len(ids))
            whole = np.concatenate([block_tokens(i, block, vocab, seed) for i in ids])
            requests.append(
                BlockRequest(whole[:length], max(1, -(-record["output_length"] // scale)))
            )
    return requests
