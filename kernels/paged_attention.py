"""Causal attention of new tokens over a paged KV pool: the references of the attention kernels.

`q [rows, heads, head_dim]` are the queries of a batch of sequences. `kv [2, slots, kv_heads,
head_dim]` holds keys and values, the new rows' own among them. Query head h reads KV head
`h // (heads // kv_heads)`. `sliding_window=w` lets a query at position p see positions `(p - w, p]`.
`softcap=c` maps a score s to `c * tanh(s / c)`. A pool of FP8 codes comes with `scales [2, kv_heads]`.
"""

from __future__ import annotations

import math

import torch

from agentkv.kernels.paged import Paged


def paged_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    qo_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    *,
    scale: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Pages of one token: position j of sequence i lives in slot `kv_indices[kv_indptr[i] + j]`.

    Result: `[rows, heads, head_dim]` in q's dtype.
    """
    paged = Paged(qo_indptr.int(), kv_indptr.int(), kv_indices.int())
    return attention_reference(q, kv, paged, scale=scale, window=sliding_window, softcap=softcap)[0]


def attention_reference(
    q: torch.Tensor,
    kv: torch.Tensor,
    paged: Paged,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    scales: torch.Tensor | None = None,
    causal: bool = True,
    positions: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence at a time, in `dtype`, with no tiling. Slow and plain.

    `positions` `[rows]`: where a row stands, for the window, when it is not among the sequence's
    last; `causal=False` lets every row see all of its sequence.

    Returns the output in q's dtype (in `dtype` if that is float64) and the base-2 log of the sum of
    exponentials of each row's scores, float32 `[rows, heads]` (float64 likewise).
    """
    group = q.shape[1] // kv.shape[2]
    wide = dtype == torch.float64
    out = torch.zeros(q.shape, dtype=dtype if wide else q.dtype, device=q.device)
    lse = torch.full(q.shape[:2], -math.inf, dtype=dtype, device=q.device)
    for i in range(paged.seqs):
        first, last = int(paged.qo_indptr[i]), int(paged.qo_indptr[i + 1])
        slots = paged.slots(i)
        if last == first or not len(slots):
            continue
        keys, values = (_rows(kv, side, slots, scales, dtype) for side in (0, 1))
        keys, values = (t.repeat_interleave(group, dim=1) for t in (keys, values))
        at = torch.arange(len(slots) - (last - first), len(slots), device=q.device)[:, None]
        if positions is not None:
            at = positions[first:last, None]
        col = torch.arange(len(slots), device=q.device)[None, :]
        seen = col <= at if causal else torch.ones_like(col <= at)
        if window is not None:
            seen &= col > at - window
        score = torch.einsum("qhd,khd->hqk", q[first:last].to(dtype), keys) * scale
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        score = score.masked_fill(~seen, -math.inf)
        total = score.logsumexp(-1, keepdim=True)
        weight = torch.where(seen, torch.exp(score - total), 0.0)
        out[first:last] = torch.einsum("hqk,khd->qhd", weight, values).to(out.dtype)
        lse[first:last] = total[..., 0].T * math.log2(math.e)
    return out, lse


def _rows(
    kv: torch.Tensor,
    side: int,
    slots: torch.Tensor,
    scales: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    if kv.dtype != torch.float8_e4m3fn:
        return kv[side][slots].to(dtype)
    if scales is None:
        raise ValueError("a pool of FP8 codes needs scales")
    codes = kv.view(torch.uint8)[side][slots].view(torch.float8_e4m3fn)
    return codes.to(dtype) * scales[side][:, None].to(dtype)
