"""The references agree with what the engine runs, and with the textbook forms."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import agentkv.kernels
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.config import Rope
from agentkv.engine.model.rope import RopeTable, frequencies
from agentkv.kernels import fp8
from agentkv.kernels.cascade_attention import cascade_attention, gain_bound
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.extend_attention import extend_attention
from agentkv.kernels.interleave import interleave
from agentkv.kernels.kv_copy import kv_gather, kv_scatter
from agentkv.kernels.kv_store import kv_store
from agentkv.kernels.paged import Paged
from agentkv.kernels.qk_norm_rope import qk_norm_rope
from agentkv.kernels.rms_norm import rms_norm
from agentkv.kernels.rope import rope
from agentkv.kernels.sampling import sample
from agentkv.kernels.silu_mul import silu_mul
from agentkv.kernels.tiles import plan_tiles, spread


def test_the_package_imports_nothing() -> None:
    # Another project's loader may import this folder under the plain name `kernels`.
    code = f"import sys; sys.path.insert(0, {str(agentkv.kernels.__path__[0] + '/..')!r}); import kernels; "
    code += "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_triton_every_operation_takes_its_reference() -> None:
    folder = Path(agentkv.kernels.__path__[0])
    names = sorted(f.stem for f in folder.glob("*.py") if f.stem != "__init__")
    code = "import sys; sys.modules['triton'] = None; import torch\n"
    code += "".join(f"import agentkv.kernels.{name}\n" for name in names)
    code += (
        "from agentkv.kernels.silu_mul import silu_mul\n"
        "assert silu_mul(torch.ones(1, 4), torch.ones(1, 4)).shape == (1, 4)\n"
        "assert agentkv.kernels.jit.triton is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rms_norm_is_torchs() -> None:
    x, weight = torch.randn(5, 3, 48), torch.randn(48)
    expected = torch.nn.functional.rms_norm(x, (48,), weight, 1e-5)
    assert torch.allclose(rms_norm(x, weight, 1e-5), expected, atol=1e-6)


def test_rotation_in_pair_order_is_the_rotation_of_halves() -> None:
    heads, dim, rows = 3, 16, 7
    x = torch.randn(rows, heads, dim)
    table = RopeTable(Rope(theta=10000.0), dim, device=torch.device("cpu"))
    positions = torch.tensor([0, 1, 2, 5, 100, 2047, 2048])
    angle = positions[:, None].float() * frequencies(Rope(theta=10000.0), dim)
    cos, sin = angle.cos(), angle.sin()
    # The form that checkpoints are made for: x * cos + rotate_half(x) * sin, halves apart.
    wide_cos, wide_sin = (torch.cat((t, t), -1)[:, None] for t in (cos, sin))
    half = torch.cat((-x[..., dim // 2 :], x[..., : dim // 2]), -1)
    expected = x * wide_cos + half * wide_sin
    # Reordered as `interleave` reorders a projection's rows, both are the same.
    order = interleave(torch.arange(dim)[:, None], dim).ravel()
    paired = x[..., order]
    every = torch.stack((cos, sin), dim=-1)
    turned = rope(paired.clone(), every, torch.arange(rows))
    assert torch.allclose(turned, expected[..., order], atol=1e-5)
    inplace = paired.clone()
    RopeTable.rotate(inplace, table.at(positions))
    assert torch.allclose(inplace, expected[..., order], atol=1e-5)


def test_attention_is_torchs() -> None:
    lens, new, heads, dim = [9, 1, 20], [4, 1, 20], 4, 16
    kv = torch.randn(2, 64, 2, dim)
    slots = torch.randperm(64)[: sum(lens)].int()
    ends = torch.tensor([0, *lens]).cumsum(0).int()
    paged = Paged(torch.tensor([0, *new]).cumsum(0).int(), ends, slots)
    q = torch.randn(sum(new), heads, dim)
    out, lse = extend_attention(q, kv, paged, scale=0.3)
    row = 0
    for i, (n, m) in enumerate(zip(lens, new, strict=True)):
        k, v = (
            kv[:, slots[ends[i] : ends[i + 1]].long()].repeat_interleave(2, dim=2).transpose(1, 2)
        )
        mask = torch.ones(m, n, dtype=torch.bool).tril(n - m)
        mine = q[row : row + m].transpose(0, 1)
        expected = torch.nn.functional.scaled_dot_product_attention(mine, k, v, mask, scale=0.3)
        torch.testing.assert_close(out[row : row + m], expected.transpose(0, 1))
        score = (mine @ k.transpose(1, 2) * 0.3).masked_fill(~mask, -torch.inf)
        natural = lse[row : row + m].T * math.log(2)
        torch.testing.assert_close(natural, score.logsumexp(-1))
        row += m
    last = torch.tensor([3, 4, 24])
    one = decode_attention(q[last], kv, paged, scale=0.3)[0]
    torch.testing.assert_close(one, out[last])


def test_a_cascade_is_attention_over_prefix_and_own_part() -> None:
    kv, q = torch.randn(2, 64, 2, 16), torch.randn(3, 4, 16)
    shared, own = torch.arange(32, dtype=torch.int32), torch.tensor([40, 50, 41], dtype=torch.int32)
    step = torch.arange(4, dtype=torch.int32)
    found, _ = cascade_attention(q, kv, shared, Paged(step, step, own), scale=0.2, shared_len=32)
    flat = torch.cat([torch.cat((shared, own[i : i + 1])) for i in range(3)])
    expected, _ = extend_attention(q, kv, Paged(step, step * 33, flat), scale=0.2)
    torch.testing.assert_close(found, expected)
    assert gain_bound(8192, 0, 64) == 64 and gain_bound(0, 100, 64) == 1
    with pytest.raises(ValueError, match="whole pages"):
        cascade_attention(q, kv, shared, Paged(step, step, own), scale=0.2, shared_len=31)


def test_what_is_stored_is_what_the_pool_stores() -> None:
    for kind in (torch.float32, torch.bfloat16, fp8.FP8):
        scales = torch.rand(1, 2, 3) + 0.01
        pools = [
            KVPool(layers=1, slots=20, kv_heads=3, head_dim=8, dtype=kind, scales=scales)
            for _ in range(2)
        ]
        k, v = torch.randn(2, 4, 3, 8) * 3
        slots = torch.tensor([7, 0, 19, 3])
        kv_store(k, v, pools[0].layer(0), slots, pools[0].scales_of(0))
        pools[1].put(0, slots, torch.stack((k, v)))
        mine, its = (p.layer(0).view(torch.uint8) for p in pools)
        assert torch.equal(mine, its)
        # Page-major, as the tiers keep it, and back.
        tier = torch.zeros((2, 1, 2, 4, 3, 8), dtype=torch.uint8 if kind == fp8.FP8 else kind)
        tier = tier.view(kind)
        kv_gather(pools[0].layer(0), torch.tensor([1, 4], dtype=torch.int32), tier[:, 0], 4)
        assert torch.equal(tier[1, 0, 1].view(torch.uint8), mine[1, 16:20])
        kv_scatter(tier[:, 0], pools[1].layer(0), torch.tensor([0, 2], dtype=torch.int32), 4)
        assert torch.equal(its[:, 8:12], mine[:, 16:20])


def test_small_operations_are_torchs() -> None:
    x = torch.randn(5, 2 * 12)
    gate, up = x.chunk(2, dim=1)
    torch.testing.assert_close(silu_mul(gate, up), torch.nn.functional.silu(gate) * up)
    qk, weight = torch.randn(3, 4, 8), torch.randn(4, 8)
    expected = torch.nn.functional.rms_norm(qk, (8,), None, 1e-6) * weight
    torch.testing.assert_close(
        qk_norm_rope(qk.clone(), weight, None, torch.zeros(3), 1e-6), expected
    )
    residual, weight = torch.randn(5, 24), torch.randn(24)
    expected = torch.nn.functional.rms_norm(residual + x, (24,), weight, 1e-6)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6, residual=residual), expected)


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, 1.0, -torch.inf])
    n = 20000
    draws = (torch.arange(n) + 0.5) / n
    rows = logits.expand(n, -1)

    def shares(top_k: int, top_p: float, min_p: float) -> torch.Tensor:
        warm, k, p, least = (torch.full((n,), x) for x in (0.5, top_k, top_p, min_p))
        found = sample(rows, warm, k, p, least, draws)
        return torch.bincount(found, minlength=5) / n

    def expected(*kept: int) -> torch.Tensor:
        mask = torch.ones(5, dtype=torch.bool)
        mask[list(kept)] = False
        return torch.softmax((logits / 0.5).masked_fill(mask, -torch.inf), 0)

    def same(a: torch.Tensor, b: torch.Tensor) -> None:
        torch.testing.assert_close(a, b, atol=1e-3, rtol=0)

    same(shares(0, 1.0, 0.0), expected(0, 1, 2, 3))
    same(shares(2, 1.0, 0.0), expected(0, 2))  # of two equal ones the first
    same(shares(0, 0.8, 0.0), expected(0, 2))
    same(shares(0, 1.0, 0.1), expected(0, 2, 3))
    same(shares(0, 1e-9, 0.0), expected(0))


def test_tiles_cover_every_row_once_and_the_longest_come_first() -> None:
    tiles = plan_tiles([0, 5, 5, 9], [20, 7, 300], 4, device="cpu", split=128)
    assert sorted(map(tuple, tiles.work.tolist())) == [
        (0, 0, 0), (0, 4, 0), (2, 0, 0), (2, 0, 1), (2, 0, 2),
    ]  # fmt: skip
    assert tiles.work[0].tolist() == [2, 0, 0] and tiles.work[-1].tolist()[0] == 0
    assert (tiles.rows, tiles.parts, tiles.split) == (9, 3, 128)
    assert plan_tiles([0], [], 4, device="cpu").work.shape == (0, 3)


def test_few_rows_behind_long_prefixes_are_spread() -> None:
    split = spread([0, 50], [8192], 32, kv_heads=8, programs=132)
    assert split % 128 == 0
    tiles = plan_tiles([0, 50], [8192], 32, device="cpu", split=split)
    assert 132 / 2 < 8 * len(tiles.work) < 2 * 132
    assert spread([0, 8192], [8192], 32, kv_heads=8, programs=132) == 0
    assert spread([0, 50], [200], 32, kv_heads=1, programs=132) == 0
    assert spread([0], [], 32, kv_heads=1, programs=132) == 0


def test_tables_are_checked() -> None:
    i32, i64 = torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(TypeError, match="int32"):
        Paged(i32, i64, i32)
    with pytest.raises(ValueError, match="power of two"):
        Paged(i32, i32, i32, i32, 12)
    with pytest.raises(ValueError, match="kv_last_page_len"):
        Paged(i32, i32, i32, None, 16)
