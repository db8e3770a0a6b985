"""Norm of each head of q and k, and then rotation, in one pass (Qwen3's attention).

Signature: `qk [rows, heads, head_dim]`, query heads and then key heads, changed in place (rows may be
strided: a view of a fused q, k, v projection); `weight [heads, head_dim]` in qk's dtype, a row for
each head; `table` and `positions` as in rope, or `table=None` for layers that do not rotate.
The norm is rounded to qk's dtype, before and after the weight, as if the operations were apart.
"""

from __future__ import annotations

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.jit import jit, power_of_two, tl
from agentkv.kernels.rms_norm import rms_norm_reference
from agentkv.kernels.rope import cos_sin, rope_reference, turned


def qk_norm_rope(
    qk: torch.Tensor,
    weight: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """Norm and turn qk, and return it. All of a head must be rotated, or nothing."""
    dim = qk.shape[2]
    if table is not None and 2 * table.shape[1] != dim:
        raise ValueError(f"a table for {2 * table.shape[1]} dimensions does not fit heads of {dim}")
    if not runs_triton(qk):
        return qk_norm_rope_reference(qk, weight, table, positions, eps)
    rows, heads, _ = qk.shape
    block_h = max(1, min(power_of_two(heads), 4096 // power_of_two(dim)))
    if rows:
        _qk_norm_rope[(rows, -(-heads // block_h))](
            qk, weight, table, positions, eps, heads, qk.stride(0), qk.stride(1), weight.stride(0),
            D=dim, BLOCK_D=power_of_two(dim), BLOCK_H=block_h, TURN=table is not None, num_warps=4,
        )  # fmt: skip
    return qk


def qk_norm_rope_reference(
    qk: torch.Tensor,
    weight: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """The reference."""
    qk.copy_(rms_norm_reference(qk, weight, eps))
    return qk if table is None else rope_reference(qk, table, positions)


@jit(unaligned="Positions")
def _qk_norm_rope(
    QK, Weight, Table, Positions, eps, heads, row_stride, head_stride, weight_stride,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_H: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    lane = tl.arange(0, BLOCK_D)
    mask = (head[:, None] < heads) & (lane[None, :] < D)
    at = QK + row * row_stride + head[:, None] * head_stride + lane[None, :]
    x = tl.load(at, mask=mask, other=0.0)
    wide = x.to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, 1) / D + eps)[:, None]
    weight = tl.load(Weight + head[:, None] * weight_stride + lane[None, :], mask=mask, other=0.0)
    wide = wide.to(x.dtype).to(tl.float32) * weight.to(tl.float32)
    if TURN:
        wide = wide.to(x.dtype).to(tl.float32)
        cos, sin = cos_sin(Table, tl.load(Positions + row).to(tl.int64), D // 2, BLOCK_D // 2)
        wide = turned(wide, cos, sin, BLOCK_H, BLOCK_D // 2)
    tl.store(at, wide.to(x.dtype), mask=mask)
