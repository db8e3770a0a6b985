"""What a rank has computed, as it counts it by itself: the ranks of one engine must agree."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from agentkv.engine.kv.pool import KVPool
from agentkv.engine.sched.batch import ForwardBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """Of one rank. `computed_tokens`: rows it ran. `reused_tokens`: positions before them that it read
    from slots that earlier steps had filled, summed over sequences and steps. `tables`: a checksum of
    every table it was given, in order. `kv_heads`, `kv_bytes`: its part of the pool."""

    rank: int
    pid: int
    steps: int
    computed_tokens: int
    reused_tokens: int
    tables: int
    kv_heads: int
    kv_bytes: int

    @classmethod
    def of(cls, found: dict[str, Any]) -> RankFacts:
        return cls(**found)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Tally:
    """Counts the steps of one rank."""

    def __init__(self) -> None:
        self.steps = self.computed = self.reused = self.tables = 0

    def count(self, batch: ForwardBatch) -> None:
        """A step that is about to run."""
        self.steps += 1
        self.computed += len(batch.input_ids)
        self.reused += len(batch.kv_indices) - len(batch.input_ids)
        for table in (
            batch.input_ids,
            batch.positions,
            batch.out_slots,
            batch.qo_indptr,
            batch.kv_indptr,
            batch.kv_indices,
            batch.logit_rows,
        ):
            self.tables = zlib.crc32(np.ascontiguousarray(table).data, self.tables)

    def facts(self, rank: int, pool: KVPool) -> RankFacts:
        return RankFacts(
            rank=rank,
            pid=os.getpid(),
            steps=self.steps,
            computed_tokens=self.computed,
            reused_tokens=self.reused,
            tables=self.tables,
            kv_heads=pool.kv_heads,
            kv_bytes=pool.nbytes,
        )


def disagreement(facts: Sequence[RankFacts]) -> str | None:
    """How the ranks differ in what they ran, or None."""
    first = facts[0]
    for other in facts[1:]:
        for name in ("steps", "computed_tokens", "reused_tokens", "tables"):
            one, two = getattr(first, name), getattr(other, name)
            if one != two:
                return f"{name} is {one} on rank {first.rank} and {two} on rank {other.rank}"
    return None
