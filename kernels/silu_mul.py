"""`silu(gate) * up`, the middle of a gated feed-forward layer.

Signature: `gate [rows, n]`, `up [rows, n]`, of one dtype, rows strided (the two halves of one
projection will do); the result is contiguous, `[rows, n]`, of that dtype. Computed in float32; silu is
rounded to the dtype before the product, as if the operations were apart.
"""

from __future__ import annotations

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.jit import cdiv, jit, tl

_BLOCK = 1024


def silu_mul(
    gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """`out`: where to write, `[rows, n]` contiguous; may be gate or up if they are contiguous."""
    if not runs_triton(gate):
        return silu_mul_reference(gate, up, out=out)
    rows, n = gate.shape
    out = torch.empty((rows, n), dtype=gate.dtype, device=gate.device) if out is None else out
    if rows:
        _silu_mul[(rows, cdiv(n, _BLOCK))](
            gate, up, out, n, gate.stride(0), up.stride(0), BLOCK=_BLOCK, num_warps=4
        )
    return out


def silu_mul_reference(
    gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The reference."""
    return torch.mul(torch.nn.functional.silu(gate), up, out=out)


@jit
def _silu_mul(Gate, Up, Out, n, gate_stride, up_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < n
    gate = tl.load(Gate + row * gate_stride + lane, mask=mask, other=0.0)
    up = tl.load(Up + row * up_stride + lane, mask=mask, other=0.0).to(tl.float32)
    wide = gate.to(tl.float32)
    silu = (wide * tl.sigmoid(wide)).to(gate.dtype).to(tl.float32)
    tl.store(Out + row * n + lane, (silu * up).to(gate.dtype), mask=mask)
