"""Put attention over several parts of the keys together, by the log-sum-exp of each part.

Signature: `parts [n, rows, heads, head_dim]` float32, each normalised within its own keys;
`lse [n, rows, heads]` float32, base 2. Row r has the first `counts[r]` parts (int32 `[rows]`), or all
of them. Result: `[rows, heads, head_dim]` and float32 `[rows, heads]`. A part whose lse is -inf saw
no key: it is not read. Parts are added in order, so equal parts give equal bits.
"""

from __future__ import annotations

import math

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.jit import jit, power_of_two, tl


def merge_lse(
    parts: torch.Tensor,
    lse: torch.Tensor,
    counts: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output in `dtype` (of `out`, or of the parts), and the lse over all parts."""
    if not runs_triton(parts):
        return merge_lse_reference(parts, lse, counts, dtype=dtype, out=out)
    n, rows, heads, dim = parts.shape
    if out is None:
        out = parts.new_empty((rows, heads, dim), dtype=dtype or parts.dtype)
    whole = torch.empty((rows, heads), dtype=torch.float32, device=parts.device)
    if rows:
        _merge[(rows, heads)](
            parts, lse, counts, out, whole, n, heads, *parts.stride()[:3], *lse.stride(),
            *out.stride()[:2], D=dim, BLOCK_D=power_of_two(dim), COUNTED=counts is not None,
            num_warps=1 if dim <= 128 else 2,
        )  # fmt: skip
    return out, whole


def merge_lse_reference(
    parts: torch.Tensor,
    lse: torch.Tensor,
    counts: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference."""
    if counts is not None:
        absent = torch.arange(len(parts), device=parts.device)[:, None] >= counts
        lse = lse.masked_fill(absent[..., None], -math.inf)
    peak = lse.amax(0) if len(parts) else lse.new_full(lse.shape[1:], -math.inf)
    base = torch.where(peak == -math.inf, 0.0, peak)
    weight = torch.exp2(lse - base)
    total = weight.sum(0)
    some = torch.where(total == 0, 1.0, total)
    used = torch.where(weight[..., None] > 0, parts, 0.0)
    result = (used * weight[..., None]).sum(0) / some[..., None]
    if out is None:
        out = result.to(dtype or parts.dtype)
    else:
        out.copy_(result)
    return out, torch.where(total == 0, -math.inf, base + torch.log2(some))


@jit(varying="n lpart", unaligned="Lse Counts Whole")
def _merge(
    Parts, Lse, Counts, Out, Whole, n, heads, part, row, head, lpart, lrow, lhead, orow, ohead,
    D: tl.constexpr, BLOCK_D: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    lane = tl.arange(0, BLOCK_D)
    if COUNTED:
        n = tl.load(Counts + r)
    Lse += r * lrow + h * lhead
    Parts += r * row + h * head
    peak = float("-inf")
    for i in range(n):
        peak = tl.maximum(peak, tl.load(Lse + i * lpart))
    base = tl.where(peak == float("-inf"), 0.0, peak)
    total = 0.0
    acc = tl.zeros([BLOCK_D], tl.float32)
    for i in range(n):
        weight = tl.exp2(tl.load(Lse + i * lpart) - base)
        acc += weight * tl.load(Parts + lane, mask=(lane < D) & (weight > 0), other=0.0)
        total += weight
        Parts += part  # stepwise: i * part may not fit an int32
    some = tl.where(total == 0.0, 1.0, total)
    tl.store(Out + r * orow + h * ohead + lane, acc / some, mask=lane < D)
    tl.store(Whole + r * heads + h, tl.where(total == 0.0, float("-inf"), base + tl.log2(some)))
