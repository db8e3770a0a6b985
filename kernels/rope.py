"""Rotary position embedding in place, over adjacent pairs.

Signature: `x [rows, heads, head_dim]`; pair i is `(x[..., 2 i], x[..., 2 i + 1])`. `table [positions,
rotated / 2, 2]` float32 holds cosine and sine for each position and pair (every scaling of the
frequencies is in it; `view_as_real` of a table of complex numbers has this form); `positions [rows]`
int32 or int64. The first `rotated` dimensions turn, the others stay. Computed in float32.

`interleave` brings the projections of a checkpoint into this order.
Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
"""

from __future__ import annotations

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.interleave import interleave as interleave
from agentkv.kernels.jit import jit, power_of_two, tl


def rope(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Turn x, and return it. Rows and heads may be strided."""
    _check(x, table)
    if not runs_triton(x):
        return rope_reference(x, table, positions)
    rows, heads, _ = x.shape
    half = table.shape[1]
    block = power_of_two(half)
    block_h = max(1, min(power_of_two(heads), 2048 // block))
    if rows:
        _rope[(rows, -(-heads // block_h))](
            x, table, positions, heads, x.stride(0), x.stride(1),
            HALF=half, BLOCK=block, BLOCK_H=block_h, num_warps=4,
        )  # fmt: skip
    return x


def rope_reference(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The reference."""
    turned = 2 * table.shape[1]
    cos, sin = table[positions.long()].unbind(-1)
    pairs = x[..., :turned].float().unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    result = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    x[..., :turned] = result.flatten(-2).to(x.dtype)
    return x


def _check(x: torch.Tensor, table: torch.Tensor) -> None:
    if table.dtype != torch.float32 or table.dim() != 3 or not table.is_contiguous():
        raise ValueError("the table must be float32 [positions, rotated / 2, 2], contiguous")
    if 2 * table.shape[1] > x.shape[-1] or x.stride(-1) != 1:
        raise ValueError("x must have a contiguous last axis, no shorter than what is rotated")


@jit
def turned(x, cos, sin, HEADS: tl.constexpr, HALF: tl.constexpr):
    """`x [HEADS, 2 HALF]` float32 with its pairs turned by `cos`, `sin` `[HALF]`."""
    even, odd = tl.split(tl.reshape(x, (HEADS, HALF, 2)))
    both = tl.join(even * cos - odd * sin, odd * cos + even * sin)
    return tl.reshape(both, (HEADS, 2 * HALF))


@jit
def cos_sin(Table, position, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """A row of the table, `[1, BLOCK]` each."""
    lane = tl.arange(0, 2 * BLOCK)
    row = tl.load(Table + position * 2 * HALF + lane, mask=lane < 2 * HALF, other=0.0)
    return tl.split(tl.reshape(row, (1, BLOCK, 2)))


@jit(unaligned="Positions")
def _rope(
    X, Table, Positions, heads, row_stride, head_stride,
    HALF: tl.constexpr, BLOCK: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    lane = tl.arange(0, 2 * BLOCK)
    cos, sin = cos_sin(Table, tl.load(Positions + row).to(tl.int64), HALF, BLOCK)
    mask = (head[:, None] < heads) & (lane[None, :] < 2 * HALF)
    at = X + row * row_stride + head[:, None] * head_stride + lane[None, :]
    x = tl.load(at, mask=mask, other=0.0)
    tl.store(at, turned(x.to(tl.float32), cos, sin, BLOCK_H, BLOCK).to(x.dtype), mask=mask)
