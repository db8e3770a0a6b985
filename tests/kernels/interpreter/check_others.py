"""The other kernels under the interpreter, against their references.

Run by tests/kernels/test_interpreted.py; by hand: TRITON_INTERPRET=1 pytest <this file>.
"""

from __future__ import annotations

import pytest
import torch

from agentkv.kernels import fp8
from agentkv.kernels.kv_copy import (
    kv_gather,
    kv_gather_reference,
    kv_scatter,
    kv_scatter_reference,
)
from agentkv.kernels.kv_store import kv_store, kv_store_reference
from agentkv.kernels.merge_lse import merge_lse, merge_lse_reference
from agentkv.kernels.qk_norm_rope import qk_norm_rope, qk_norm_rope_reference
from agentkv.kernels.rms_norm import rms_norm, rms_norm_reference
from agentkv.kernels.rope import rope, rope_reference
from agentkv.kernels.sampling import sample, sample_reference
from agentkv.kernels.silu_mul import silu_mul, silu_mul_reference
from tests.kernels.interpreter.cases import BF16, F32, FP8

DTYPES = [F32, BF16]


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    rtol, atol = (8e-3, 1e-2) if found.dtype == BF16 else (1e-5, 1e-5)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rms_norm(dtype: torch.dtype) -> None:
    wide, weight = torch.randn(7, 200).to(dtype), torch.randn(100).to(dtype)
    x = wide[:, :100]
    near(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5))
    residual = torch.randn(7, 100).to(dtype)
    mine, its = residual.clone(), residual.clone()
    near(
        rms_norm(x, weight, 1e-5, residual=mine), rms_norm_reference(x, weight, 1e-5, residual=its)
    )
    assert torch.equal(mine, its)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim, half", [(64, 32), (80, 40), (64, 16)])
def test_rope(dtype: torch.dtype, dim: int, half: int) -> None:
    table = torch.randn(50, half, 2)
    positions = torch.tensor([0, 49, 3, 3, 17])
    qkv = torch.randn(5, 7, dim).to(dtype)
    mine, its = qkv.clone(), qkv.clone()
    near(rope(mine[:, :5], table, positions), rope_reference(its[:, :5], table, positions))
    assert torch.equal(mine[:, 5:], qkv[:, 5:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("turns", [True, False])
def test_qk_norm_rope(dtype: torch.dtype, turns: bool) -> None:
    table, positions = torch.randn(50, 40, 2), torch.tensor([0, 49, 3])
    weight, qkv = torch.randn(5, 80).to(dtype), torch.randn(3, 7, 80).to(dtype)
    mine, its = qkv.clone(), qkv.clone()
    given = table if turns else None
    near(
        qk_norm_rope(mine[:, :5], weight, given, positions, 1e-6),
        qk_norm_rope_reference(its[:, :5], weight, given, positions, 1e-6),
    )
    assert torch.equal(mine[:, 5:], qkv[:, 5:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_silu_mul(dtype: torch.dtype) -> None:
    both = torch.randn(3, 2 * 1100).to(dtype) * 4
    gate, up = both.chunk(2, dim=1)
    near(silu_mul(gate, up), silu_mul_reference(gate, up))


def test_merge_lse() -> None:
    parts, lse = torch.randn(4, 5, 3, 80), torch.randn(4, 5, 3) * 3
    near(merge_lse(parts, lse)[0], merge_lse_reference(parts, lse)[0])
    counts = torch.tensor([0, 1, 2, 3, 4], dtype=torch.int32)
    lse[1, 3] = -torch.inf
    parts[1, 3] = torch.nan
    for row, n in enumerate(counts.tolist()):
        parts[n:, row], lse[n:, row] = torch.nan, torch.nan
    found, expected = merge_lse(parts, lse, counts), merge_lse_reference(parts, lse, counts)
    near(found[0], expected[0])
    near(found[1], expected[1])
    assert (found[0][0] == 0).all() and (found[1][0] == -torch.inf).all()
    assert torch.equal(found[0][1], parts[0, 1])


@pytest.mark.parametrize("kind", [F32, BF16, FP8], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kv_store(kind: torch.dtype, dtype: torch.dtype) -> None:
    qkv = torch.randn(6, 9, 80).to(dtype)
    qkv[0] *= 1e30
    if dtype == F32 and kind == BF16:
        qkv[1] = torch.finfo(F32).max  # no bfloat16 is as large
    k, v = qkv[:, 3:6], qkv[:, 6:]
    slots = torch.tensor([11, 0, -1, 5, 12, 3], dtype=torch.int32)
    scales = torch.tensor([[1e-3, 0.01, 1.0], [10.0, 1e3, 0.004]])
    raw = torch.uint8 if kind == FP8 else kind
    mine, its = (torch.full((2, 13, 3, 80), 7, dtype=raw).view(kind) for _ in range(2))
    kv_store(k, v, mine, slots, scales)
    kv_store_reference(k, v, its, slots, scales)
    assert torch.equal(mine.view(raw), its.view(raw))
    assert mine.float().isfinite().all()
    assert (mine.view(raw)[:, 1] == 7).all()


def test_fp8_codes_are_those_of_the_pool() -> None:
    # Every code, all midpoints between codes, and what lies just beside them.
    codes = torch.arange(127, dtype=torch.uint8).view(FP8).float()
    middle = (codes[1:] + codes[:-1]) / 2
    beside = torch.cat((middle, middle.nextafter(codes[1:]), middle.nextafter(codes[:-1])))
    odd = torch.tensor([448.0, 464.0, 480.0, 1e9, 3e38, 2.0**-10, 2.0**-11, 1e-30])
    x = torch.cat((codes, beside, odd))
    x = torch.nn.functional.pad(torch.cat((x, -x)), (0, -2 * len(x) % 64)).view(1, -1, 64)
    heads = x.shape[1]
    kv, scales = torch.zeros(2, 1, heads, 64, dtype=torch.uint8).view(FP8), torch.ones(2, heads)
    kv_store(x, x, kv, torch.zeros(1, dtype=torch.int64), scales)
    both = torch.stack((x, x))
    assert torch.equal(kv.view(torch.uint8), fp8.encode(both, scales).view(torch.uint8))


@pytest.mark.parametrize("kind", [F32, BF16, FP8], ids=str)
@pytest.mark.parametrize("page", [1, 16])
def test_pages_go_out_and_come_back(kind: torch.dtype, page: int) -> None:
    raw = torch.randint(0, 120, (2, 8 * page, 2, 80), dtype=torch.uint8)
    pool = raw.view(kind) if kind == FP8 else raw.to(kind)
    pages = torch.tensor([6, 0, 3], dtype=torch.int32)
    bits = torch.uint8 if kind == FP8 else kind
    tier = torch.zeros((3, 2, 2, page, 2, 80), dtype=bits).view(kind)
    mine, its = tier.clone(), tier.clone()
    kv_gather(pool, pages, mine[:, 1], page)
    kv_gather_reference(pool, pages, its[:, 1], page)
    assert torch.equal(mine.float(), its.float())
    assert (mine.float()[:, 0] == 0).all()
    back, expected = (torch.zeros_like(raw).view(kind) if kind == FP8 else torch.zeros_like(pool)
                      for _ in range(2))  # fmt: skip
    other = torch.tensor([1, 7, 2], dtype=torch.int32)
    kv_scatter(mine[:, 1], back, other, page)
    kv_scatter_reference(mine[:, 1], expected, other, page)
    assert torch.equal(back.float(), expected.float())
    assert torch.equal(back.float()[:, 7 * page : 8 * page], pool.float()[:, :page])


RULES = [
    (0, 1.0, 0.0),
    (1, 1.0, 0.0),
    (7, 1.0, 0.0),
    (0, 0.6, 0.0),
    (20, 0.8, 0.0),
    (0, 1.0, 0.2),
    (30, 0.95, 0.05),
    (500, 1e-6, 0.0),
]


@pytest.mark.parametrize("ties", [False, True])
def test_sample(ties: bool) -> None:
    make = torch.Generator().manual_seed(int(ties))
    logits = torch.randn(len(RULES) + 1, 150, generator=make) * 2
    if ties:
        logits = logits.round() * 0.5
        logits[:, 3:90] = -torch.inf
    top_k, top_p, min_p = (torch.tensor(x) for x in zip(*RULES, (5, 0.5, 0.1), strict=True))
    warm = torch.tensor([1.0, 0.7, 1.5, 1.0, 0.9, 2.0, 1.0, 1.0, 0.0])
    settings = warm, top_k.int(), top_p.float(), min_p.float()
    for draw in (0.37, 1 - 2**-24):
        draws = torch.full((len(RULES) + 1,), draw)
        found, expected = (f(logits, *settings, draws) for f in (sample, sample_reference))
        assert found.tolist() == expected.tolist()
    assert found[-1] == logits[-1].argmax()
