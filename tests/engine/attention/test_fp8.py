"""Attention over FP8 codes is attention over the numbers that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.cpu import CpuAttention
from agentkv.engine.attention.reading import COPIED
from agentkv.engine.attention.tiles import TILE
from agentkv.engine.kv.pool import SLOT_PAD
from agentkv.kernels.fp8 import decode, encode
from agentkv.kernels.paged_attention import paged_attention
from tests.engine.attention.test_cpu import SLOTS, sequence, tables

HEADS, DIM = 2, 16


def numbers(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A full pool's K/V, whose heads differ in size, and scales for them (powers of two)."""
    maker = torch.Generator().manual_seed(seed)
    kv = torch.randn(2, SLOTS + SLOT_PAD, HEADS, DIM, generator=maker)
    kv[0, :, 1] *= 8
    kv[1, :, 0] *= 30
    return kv, torch.tensor([[2.0**-6, 2.0**-3], [0.25, 2.0**-7]])


def spec_of(window: int | None = None, softcap: float | None = None) -> AttentionSpec:
    return AttentionSpec(
        num_heads=4,
        num_kv_heads=HEADS,
        head_dim=DIM,
        scale=0.25,
        sliding_window=window,
        softcap=softcap,
    )


@given(
    parts=st.lists(sequence, min_size=1, max_size=5),
    seed=st.integers(0, 2**16),
    window=st.sampled_from([None, 60]),
    softcap=st.sampled_from([None, 5.0]),
    padding=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_codes_and_the_numbers_they_stand_for_give_the_same_bits(
    parts: list[tuple[int, int, str]],
    seed: int,
    window: int | None,
    softcap: float | None,
    padding: int,
) -> None:
    spec = spec_of(window, softcap)
    qo, kv, indices = tables(parts, seed)
    store, scales = numbers(seed)
    codes = encode(store, scales)
    q = torch.randn(int(qo[-1]) + padding, 4, DIM, generator=torch.Generator().manual_seed(seed))
    backend = CpuAttention()
    plan = backend.plan(qo, kv, indices)
    got = backend.run(q, codes, plan, spec, scales).clone()
    assert bool(torch.isfinite(got).all())
    plan = backend.plan(qo, kv, indices)
    assert torch.equal(got, backend.run(q, decode(codes, scales), plan, spec))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scales_that_are_no_powers_of_two(dtype: torch.dtype) -> None:
    parts: Any = [(700, 1, "run"), (300, 40, "scattered"), (256, 256, "pages"), (9, 1, "shared")]
    qo, kv, indices = tables(parts, 3)
    store, scales = numbers(3)
    scales = scales * 0.737
    codes = encode(store, scales)
    q = torch.randn(int(qo[-1]), 4, DIM, generator=torch.Generator().manual_seed(3)).to(dtype)
    backend = CpuAttention()
    got = backend.run(q, codes, backend.plan(qo, kv, indices), spec_of(), scales)
    assert got.dtype == dtype
    tensors = (torch.from_numpy(a) for a in (qo, kv, indices))
    expected = paged_attention(q.float(), decode(codes, scales), *tensors, scale=0.25)
    tolerance = 1e-4 if dtype == torch.float32 else 0.5
    assert torch.allclose(got.view(-1, 4, DIM).float(), expected, rtol=1e-2, atol=tolerance)
    assert torch.equal(got, got.nan_to_num())


def test_only_a_few_tiles_are_ever_widened() -> None:
    qo, kv, indices = tables([(2900, 1, "run"), (2800, 3, "scattered")], 1)
    store, scales = numbers(1)
    q = torch.randn(int(qo[-1]), 4, DIM)
    backend = CpuAttention()
    backend.run(q, encode(store, scales), backend.plan(qo, kv, indices), spec_of(), scales)
    assert max(b.numel() for b in backend.scratch.buffers.values()) <= COPIED * TILE * HEADS * DIM
