"""The tiled backend against the plain reference, on random paged tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.cpu import CpuAttention
from agentkv.engine.attention.probe import row_rule
from agentkv.engine.attention.tiles import TILE, FusedRule, RowRule
from agentkv.engine.kv.pool import SLOT_PAD, KVPool
from agentkv.kernels.paged_attention import paged_attention

SLOTS = 3000
sequence = st.tuples(
    st.one_of(
        st.integers(1, 40),
        st.integers(TILE - 2, TILE + 2),
        st.integers(2 * TILE - 1, 2 * TILE + 70),
    ),  # length
    st.one_of(st.just(1), st.integers(1, 60), st.just(10_000)),  # new rows (at most all)
    st.sampled_from(["run", "scattered", "pages", "shared"]),
)


def place(kind: str, length: int, rng: np.random.Generator) -> Any:
    """Slots of one sequence: one run, any order, pages of 16, or a prefix that others use too."""
    if kind == "run":
        start = int(rng.integers(0, SLOTS - length + 1))
        return np.arange(start, start + length)
    if kind == "pages":
        pages = rng.permutation(SLOTS // 16)[: -(-length // 16)]
        return (pages[:, None] * 16 + np.arange(16)).ravel()[:length]
    if kind == "shared":
        return np.concatenate([np.arange(min(length - 1, 300)), 400 + rng.permutation(2000)])[
            :length
        ]
    return rng.permutation(SLOTS)[:length]


def tables(parts: list[tuple[int, int, str]], seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    slots = [place(kind, length, rng) for length, _, kind in parts]
    new = [min(length, rows) for length, rows, _ in parts]
    qo = np.cumsum([0, *new]).astype(np.int32)
    kv = np.cumsum([0, *(len(s) for s in slots)]).astype(np.int32)
    return qo, kv, np.concatenate(slots).astype(np.int32)


@pytest.mark.parametrize(
    "rule",
    [
        RowRule(4),
        RowRule(1, fused=FusedRule(1)),
        RowRule(16, fused=FusedRule(1, narrow=(64, 128))),
        RowRule(4, fused=None),
        RowRule(1, fused=None),
        RowRule(16, fixed=True, fused=None),
    ],
    ids=["step4", "step1", "narrow", "products-step4", "products-step1", "products-fixed"],
)
@given(
    parts=st.lists(sequence, min_size=1, max_size=6),
    seed=st.integers(0, 2**16),
    heads=st.sampled_from([(3, 9), (2, 2), (1, 4)]),
    window=st.sampled_from([None, 1, 20, TILE, 300]),
    softcap=st.sampled_from([None, 5.0]),
    padding=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_reference(
    rule: RowRule,
    parts: list[tuple[int, int, str]],
    seed: int,
    heads: tuple[int, int],
    window: int | None,
    softcap: float | None,
    padding: int,
) -> None:
    kv_heads, q_heads = heads
    spec = AttentionSpec(
        num_heads=q_heads,
        num_kv_heads=kv_heads,
        head_dim=16,
        scale=0.3,
        sliding_window=window,
        softcap=softcap,
    )
    qo, kv, indices = tables(parts, seed)
    maker = torch.Generator().manual_seed(seed)
    store = torch.randn(2, SLOTS + SLOT_PAD, kv_heads, 16, generator=maker)
    q = torch.randn(int(qo[-1]) + padding, q_heads, 16, generator=maker)
    backend = CpuAttention(rule)
    got = backend.run(q, store, backend.plan(qo, kv, indices), spec)
    assert bool(torch.isfinite(got).all())
    got = got[: qo[-1]].view(-1, q_heads, 16)
    expected = paged_attention(
        q[: qo[-1]],
        store,
        torch.from_numpy(qo),
        torch.from_numpy(kv),
        torch.from_numpy(indices),
        scale=0.3,
        sliding_window=window,
        softcap=softcap,
    )
    assert torch.allclose(got, expected, atol=2e-5)


def test_rows_do_not_depend_on_their_batch() -> None:
    spec = AttentionSpec(num_heads=6, num_kv_heads=2, head_dim=32, scale=0.2)
    rule, exact = row_rule(spec)
    assert exact
    parts = [
        (700, 1, "run"),
        (256, 1, "scattered"),
        (600, 90, "pages"),
        (257, 1, "run"),
        (40, 40, "scattered"),
    ]
    qo, kv, indices = tables(parts, 1)
    maker = torch.Generator().manual_seed(0)
    store = torch.randn(2, SLOTS + SLOT_PAD, 2, 32, generator=maker)
    q = torch.randn(int(qo[-1]), 6, 32, generator=maker)
    backend = CpuAttention(rule)
    whole = backend.run(q, store, backend.plan(qo, kv, indices), spec).clone()
    for i, (length, _, _) in enumerate(parts):
        for row in range(qo[i], qo[i + 1]):
            seen = length - (qo[i + 1] - 1 - row)  # positions this row sees
            slots = indices[kv[i] : kv[i] + seen]
            plan = backend.plan(np.array([0, 1], np.int32), np.array([0, seen], np.int32), slots)
            assert torch.equal(backend.run(q[row : row + 1], store, plan, spec)[0], whole[row])


@given(
    parts=st.lists(sequence, min_size=1, max_size=5),
    seed=st.integers(0, 2**16),
    window=st.sampled_from([None, 60]),
)
@settings(max_examples=60, deadline=None)
def test_half_precision_pool_is_close_to_the_reference(
    parts: list[tuple[int, int, str]], seed: int, window: int | None
) -> None:
    spec = AttentionSpec(
        num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, sliding_window=window
    )
    qo, kv, indices = tables(parts, seed)
    maker = torch.Generator().manual_seed(seed)
    store = torch.randn(2, SLOTS + SLOT_PAD, 2, 16, generator=maker).to(torch.bfloat16)
    q = torch.randn(int(qo[-1]), 4, 16, generator=maker).to(torch.bfloat16)
    backend = CpuAttention()
    got = backend.run(q, store, backend.plan(qo, kv, indices), spec).view(-1, 4, 16)
    tensors = (torch.from_numpy(a) for a in (qo, kv, indices))
    expected = paged_attention(q, store, *tensors, scale=0.25, sliding_window=window)
    assert got.dtype == torch.bfloat16
    assert torch.allclose(got.float(), expected.float(), atol=3e-2)


def test_a_tile_that_several_sequences_share_is_read_once() -> None:
    spec = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25)
    shared = np.arange(2 * TILE)
    slots = np.concatenate([np.concatenate([shared, [2000 + 16 * i]]) for i in range(8)]).astype(
        np.int32
    )
    kv = (np.arange(9) * (2 * TILE + 1)).astype(np.int32)
    plan = CpuAttention().plan(np.arange(9, dtype=np.int32), kv, slots)
    (block,) = plan.blocks(spec)
    assert [(t.lo, t.hi, t.count) for t in block.tiles if t.hi - t.lo > 1] == [(0, 8, 2)]
    assert len(block.tiles) == 1 + 8


def test_pool_is_finite_lazy_and_padded() -> None:
    pool = KVPool(layers=2, slots=1000, kv_heads=3, head_dim=8, dtype=torch.bfloat16)
    assert pool.layer(1).shape == (2, 1000 + SLOT_PAD, 3, 8)
    assert pool.layer(0).dtype == torch.bfloat16
    assert float(pool.layer(0).abs().sum()) == 0.0
    assert SLOT_PAD >= TILE
    assert pool.nbytes == 2 * 2 * (1000 + SLOT_PAD) * 3 * 8 * 2
    assert KVPool.bytes_per_token(30, 3, 64, torch.float32) == 30 * 2 * 3 * 64 * 4
    with pytest.raises(ValueError, match="at least 1"):
        KVPool(layers=0, slots=1, kv_heads=1, head_dim=1, dtype=torch.float32)
