"""Fused tiles, merged: which calls there are, and that a row does not notice."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.attention import probe, split
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.cpu import CpuAttention
from agentkv.engine.attention.probe import row_rule
from agentkv.engine.attention.tiles import LANES, TILE
from agentkv.engine.kv.pool import SLOT_PAD

HEADS, KV_HEADS, DIM = 6, 2, 16
LONG = TILE * LANES + 300
"""More tiles than one vector of them."""
SLOTS = 3 * LONG + 4000


def spec_of(window: int | None = None) -> AttentionSpec:
    return AttentionSpec(
        num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, scale=0.3, sliding_window=window
    )


class Sequence:
    """`LONG` positions with K, V and queries of their own, to be laid anywhere in a pool that is
    full of other numbers."""

    def __init__(self, window: int | None = None) -> None:
        maker = torch.Generator().manual_seed(4)
        self.spec = spec_of(window)
        self.kv = torch.randn(2, LONG, KV_HEADS, DIM, generator=maker)
        self.q = torch.randn(LONG, HEADS, DIM, generator=maker)
        self.noise = torch.randn(2, SLOTS + SLOT_PAD, KV_HEADS, DIM, generator=maker)
        self.others = torch.randn(64, HEADS, DIM, generator=maker)
        self.backend = CpuAttention(row_rule(self.spec)[0])

    def laid(self, slots: Any) -> torch.Tensor:
        pool = self.noise.clone()
        pool[:, slots] = self.kv[:, : len(slots)]
        return pool

    def attend(
        self, rows: slice, slots: Any, pool: torch.Tensor, others: tuple[Any, ...] = ()
    ) -> torch.Tensor:
        """Rows of the sequence, behind one row of each of the `others` (their slots)."""
        tables = [*others, slots[: rows.stop]]
        new = [1] * len(others) + [rows.stop - rows.start]
        plan = self.backend.plan(
            np.cumsum([0, *new]).astype(np.int32),
            np.cumsum([0, *map(len, tables)]).astype(np.int32),
            np.concatenate(tables).astype(np.int32),
        )
        q = torch.cat((self.others[: len(others)], self.q[rows]))
        return self.backend.run(q, pool, plan, self.spec)[len(others) :].clone()


@pytest.fixture(scope="module", params=[None, 300, 700], ids=["full", "window300", "window700"])
def sequence(request: pytest.FixtureRequest) -> Sequence:
    return Sequence(request.param)


RUN = np.arange(9, 9 + LONG)


@pytest.fixture(scope="module")
def cold(sequence: Sequence) -> torch.Tensor:
    return sequence.attend(slice(0, LONG), RUN, sequence.laid(RUN))


@pytest.mark.parametrize(
    "cuts", [[TILE], [1, 100, 255, 257, 700, 2000], [511, 512, 513, LONG - 1], [4095, 4097]]
)
def test_wherever_the_prefill_is_cut(
    sequence: Sequence, cold: torch.Tensor, cuts: list[int]
) -> None:
    pool = sequence.laid(RUN)
    for low, high in pairwise([0, *cuts, LONG]):
        assert torch.equal(sequence.attend(slice(low, high), RUN, pool), cold[low:high])


@pytest.mark.parametrize(
    "at", [0, 63, 64, 255, 256, 319, 384, 511, 512, 1791, 4095, 4096, LONG - 1]
)
def test_one_row_alone_or_in_a_batch(sequence: Sequence, cold: torch.Tensor, at: int) -> None:
    pool, row = sequence.laid(RUN), slice(at, at + 1)
    others = tuple(LONG + 100 + 1000 * i + np.arange(n) for i, n in enumerate((7, 600, 256, 999)))
    assert torch.equal(sequence.attend(row, RUN, pool)[0], cold[at])
    assert torch.equal(sequence.attend(row, RUN, pool, others)[0], cold[at])
    # The same prefix under other rows: its tiles are read once for all.
    shared = tuple(np.append(RUN[: max(at - 9, 0)], LONG + 50 + i) for i in range(3))
    assert torch.equal(sequence.attend(row, RUN, pool, shared)[0], cold[at])


@pytest.mark.parametrize("layout", ["pages", "two runs", "scattered"])
def test_wherever_the_slots_lie(sequence: Sequence, cold: torch.Tensor, layout: str) -> None:
    rng = np.random.default_rng(2)
    slots = {
        "pages": (
            rng.permutation(SLOTS // 16)[: -(-LONG // 16), None] * 16 + np.arange(16)
        ).ravel(),
        "two runs": np.concatenate((np.arange(5000, 6900), np.arange(100, 100 + LONG - 1900))),
        "scattered": rng.permutation(SLOTS),
    }[layout][:LONG]
    pool = sequence.laid(slots)
    for rows in (slice(0, 300), slice(300, LONG), slice(2300, 2301), slice(LONG - 1, LONG)):
        assert torch.equal(sequence.attend(rows, slots, pool), cold[rows])


def test_a_broken_neighbour_leaves_nothing_behind() -> None:
    sequence = Sequence()
    pool = sequence.laid(RUN)
    row = slice(1000, 1001)
    others = tuple(LONG + 100 + 1000 * i + np.arange(n) for i, n in enumerate((600, 999)))
    expected = sequence.attend(row, RUN, pool, others)
    kept, sequence.others = sequence.others, torch.full_like(sequence.others, float("nan"))
    assert torch.equal(sequence.attend(row, RUN, pool, others), expected)
    # The buffers are full of NaN now, and other rows of a ragged batch lie where they lie.
    sequence.others = kept
    assert torch.equal(sequence.attend(row, RUN, pool, others[::-1]), expected)
    assert torch.equal(sequence.attend(slice(600, 1001), RUN, pool)[400:], expected)


def test_a_run_of_slots_is_one_call() -> None:
    one = np.array([0, 1], np.int32)
    backend = CpuAttention()

    def calls(slots: Any) -> list[tuple[int, int, bool]]:
        plan = backend.plan(one, np.array([0, len(slots)], np.int32), slots.astype(np.int32))
        (block,) = plan.blocks(spec_of())
        assert block.fused
        return [(t.column, t.count, t.slots is None) for t in block.tiles]

    assert calls(np.arange(2400)) == [(0, 10, True)]
    two = np.concatenate((np.arange(2000, 3000), np.arange(400, 1400)))
    assert calls(two) == [(0, 3, True), (3, 1, False), (4, 4, True)]
    assert calls(np.arange(2400)[::-1]) == [(0, 10, False)]


def test_rows_of_the_first_tile_go_the_other_way() -> None:
    plan = CpuAttention().plan(
        np.array([0, 600, 601, 602], np.int32),
        np.array([0, 600, 856, 1113], np.int32),
        np.arange(1113, dtype=np.int32),
    )
    ways = [(block.rows, block.fused) for block in plan.blocks(spec_of())]
    assert (slice(600, 601), False) in ways and (slice(601, 602), True) in ways
    assert [r for r, fused in ways if fused and r != slice(601, 602)] == [slice(256, 600)]


@pytest.mark.parametrize("broken", ["rows", "mask"])
def test_a_kernel_that_is_not_exact_is_left_alone(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = split.fused

    def fused(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        result, weight = true(q, k, v, mask, scale)
        if broken == "rows" and q.shape[2] > 500:
            result = result * 1.0001
        if broken == "mask" and mask is not None:
            weight = weight + 1e-3
        return result, weight

    probe._rule.cache_clear()
    assert row_rule(spec_of())[0].fused is not None
    monkeypatch.setattr(split, "fused", fused)
    probe._rule.cache_clear()
    try:
        rule, exact = row_rule(spec_of())
    finally:
        probe._rule.cache_clear()
    assert exact
    assert rule.fused is None
