"""The loop that all attention kernels share: a tile of queries over tiles of paged K and V.

A tile of queries is `[BLOCK_M, BLOCK_D]`; its rows may belong to several query heads of one KV head,
so that a tensor core has something to do even when each sequence has one query. KV tiles begin at
multiples of BLOCK_N of a sequence's positions, whatever the batch looks like, and a hidden position
is added as an exact 0: a row's result does not depend on which rows share its tile.

Scores are kept in base 2. Masked lanes are never read: neither tables nor pool.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from agentkv.kernels.device import native_fp8
from agentkv.kernels.jit import jit, power_of_two, tl

LOG2E = math.log2(math.e)

NOT_FP8, NATIVE, BITS = 0, 1, 2
"""How a tile of the pool becomes numbers: as it is, by the hardware's cast, or by moving bits."""


@jit
def widen(x, FP8: tl.constexpr, COMPUTE: tl.constexpr):
    """A tile as it is multiplied. BITS: codes / 256, which is exact in float16."""
    if FP8 == 2:
        w = x.to(tl.uint16)
        half = (((w & 0x80) << 8) | ((w & 0x7F) << 7)).to(tl.float16, bitcast=True)
        return half.to(COMPUTE)
    else:
        return x.to(COMPUTE)


@jit
def load_queries(ptr, mask, COMPUTE: tl.constexpr):
    """Queries as they are multiplied; narrowed with saturation where float16 is too small."""
    q = tl.load(ptr, mask=mask, other=0.0)
    if COMPUTE == tl.float16 and q.dtype != tl.float16:  # noqa: SIM300
        return tl.clamp(q.to(tl.float32), -65504.0, 65504.0).to(tl.float16)
    else:
        return q.to(COMPUTE)


@jit
def masked_scores(
    s, where, there, at, scale, inner, cap,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Products of queries and keys as scores to base 2, -inf where a row does not see a key.

    `where [keys]`: their positions, `there`: whether they exist; the rest as in `attend`.
    """
    if CAPPED:
        # tanh(x) = 1 - 2 / (1 + e^2x); `inner` holds the 2 and base 2.
        s = cap * (1.0 - 2.0 / (1.0 + tl.exp2(s * inner)))
    if MASKED:
        seen = there[None, :]
        if CAUSAL:
            seen = seen & (where[None, :] <= at[:, None])
        if WINDOW > 0:
            seen = seen & (where[None, :] > at[:, None] - WINDOW)
        # Before the scale, so that both loops end in one and the same multiply-add.
        s = tl.where(seen, s, float("-inf"))
    if not CAPPED:
        s = s * scale
    return s


@jit
def attend(
    q, most, total, acc, low, high, end, at, pages, keys, values, stride, scale, inner, cap,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAPPED: tl.constexpr,
    FP8: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Add the KV tiles that begin in `[low, high)` to (most, total, acc), and return it.

    `end`: positions from there on do not exist. `at [BLOCK_M]`: the rows' positions. Without MASKED
    every position of every tile must be visible to every row. `scale` is to base 2; with CAPPED a
    score s becomes `cap * tanh(s * inner)`, cap to base 2.
    """
    lane = tl.arange(0, BLOCK_D)
    for start in tl.range(low, high, BLOCK_N):
        where = start + tl.arange(0, BLOCK_N)
        there = where < end
        if MASKED:
            page = tl.load(pages + where // PAGE, mask=there, other=0)
        else:
            page = tl.load(pages + where // PAGE)
        slot = page.to(tl.int64) * PAGE + where % PAGE
        spot = slot[:, None] * stride + lane[None, :]
        if MASKED:
            mask = there[:, None] & (lane[None, :] < D)
            k = tl.load(keys + spot, mask=mask, other=0.0)
        elif D != BLOCK_D:
            k = tl.load(keys + spot, mask=lane[None, :] < D, other=0.0)
        else:
            k = tl.load(keys + spot)
        s = tl.dot(q, tl.trans(widen(k, FP8, COMPUTE)), input_precision="ieee")
        s = masked_scores(s, where, there, at, scale, inner, cap, MASKED, CAUSAL, WINDOW, CAPPED)
        peak = tl.maximum(most, tl.max(s, 1))
        base = tl.where(peak == float("-inf"), 0.0, peak)  # a row that has seen nothing yet
        fade = tl.exp2(most - base)
        p = tl.exp2(s - base[:, None])
        total = total * fade + tl.sum(p, 1)
        if MASKED:
            v = tl.load(values + spot, mask=mask, other=0.0)
        elif D != BLOCK_D:
            v = tl.load(values + spot, mask=lane[None, :] < D, other=0.0)
        else:
            v = tl.load(values + spot)
        acc = tl.dot(
            p.to(COMPUTE), widen(v, FP8, COMPUTE), acc * fade[:, None], input_precision="ieee"
        )
        most = peak
    return most, total, acc


@jit
def finish(most, total, acc, unit):
    """The rows' outputs, times `unit`, and their base-2 log-sum-exp."""
    some = tl.where(total == 0.0, 1.0, total)
    return acc / some[:, None] * unit, tl.where(total == 0.0, float("-inf"), most + tl.log2(some))


def constants(
    q: torch.Tensor,
    kv: torch.Tensor,
    arch: str,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: torch.Tensor | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of every attention kernel: (keys, values, scales, strides and factors), constants.

    Raises ValueError for shapes that do not go together.
    """
    heads, dim = q.shape[1:]
    kv_heads = kv.shape[2]
    if heads % kv_heads or kv.shape[3] != dim:
        raise ValueError(
            f"queries of {heads} heads x {dim} do not fit a pool of {kv_heads} heads x {kv.shape[3]}"
        )
    if q.stride(2) != 1 or kv.stride(3) != 1:
        raise ValueError("the last axis of queries and pool must be contiguous")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, and is {window}")
    fp8 = NOT_FP8
    if kv.dtype == torch.float8_e4m3fn:
        if scales is None:
            raise ValueError("a pool of FP8 codes needs scales")
        fp8 = NATIVE if native_fp8(arch) else BITS
        kv = kv if fp8 == NATIVE else kv.view(torch.uint8)
        # float16 holds every code, and bfloat16 would take one cast more on sm_90.
        compute = torch.float32 if q.dtype == torch.float32 else torch.float16
    else:
        compute = torch.promote_types(q.dtype, kv.dtype)
    unit = 256.0 if fp8 == BITS else 1.0
    inner, cap = (2.0 * scale / softcap * LOG2E, softcap * LOG2E) if softcap else (0.0, 0.0)
    arguments = (
        kv[0], kv[1], scales if fp8 else None, kv.stride(1), kv.stride(2), scale * LOG2E, inner, cap, unit,
    )  # fmt: skip
    return arguments, {
        "GROUP": heads // kv_heads,
        "D": dim,
        "BLOCK_D": max(16, power_of_two(dim)),
        "WINDOW": window or 0,
        "CAPPED": softcap is not None,
        "FP8": fp8,
        "COMPUTE": getattr(tl, str(compute).removeprefix("torch.")),
    }
