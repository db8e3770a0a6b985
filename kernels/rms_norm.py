"""Root mean square norm: `x / sqrt(mean(x^2) + eps) * weight` over the last axis.

Signature: `x [..., n]`, `weight [n]`, both of one dtype; the result has x's shape and dtype. With
`residual` (x's shape and dtype) it becomes `residual + x` in place, and that is what is normed.
The mean is taken in float32; the sum with the residual and the norm are rounded to x's dtype before
they are used, as if the operations were apart.
Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

from __future__ import annotations

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.jit import jit, power_of_two, tl


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`out` may be x. The residual must be contiguous; x needs a contiguous last axis."""
    if not runs_triton(x):
        return rms_norm_reference(x, weight, eps, residual=residual, out=out)
    n = x.shape[-1]
    rows = x.reshape(-1, n) if x.dim() != 2 else x
    result = torch.empty_like(rows, memory_format=torch.contiguous_format) if out is None else out
    flat = result.view(-1, n)
    if rows.shape[0]:
        block = power_of_two(n)
        _rms_norm[(rows.shape[0],)](
            rows, residual, weight, flat, eps, rows.stride(0), flat.stride(0),
            N=n, BLOCK=block, SUM=residual is not None,
            num_warps=min(16, max(1, block // 512)),
        )  # fmt: skip
    return result.view(x.shape)


def rms_norm_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The reference."""
    if residual is not None:
        x = residual.add_(x)
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)
    result = wide.to(x.dtype) * weight
    return result if out is None else out.copy_(result)


@jit
def _rms_norm(
    X, Residual, Weight, Out, eps, stride, out_stride,
    N: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    mask = lane < N
    x = tl.load(X + row * stride + lane, mask=mask, other=0.0)
    if SUM:
        at = Residual + row * N + lane
        sum = x.to(tl.float32) + tl.load(at, mask=mask, other=0.0).to(tl.float32)
        x = sum.to(x.dtype)
        tl.store(at, x, mask=mask)
    wide = x.to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, 0) / N + eps)
    weight = tl.load(Weight + lane, mask=mask, other=0.0).to(tl.float32)
    result = wide.to(x.dtype).to(tl.float32) * weight
    tl.store(Out + row * out_stride + lane, result.to(x.dtype), mask=mask)
