"""Causal attention of new tokens over a paged KV pool.

Signature: `q [rows, heads, head_dim]` are the queries of a batch of sequences, rows
`[qo_indptr[i], qo_indptr[i+1])` belong to sequence i and are its *last* positions.
`kv [2, slots, kv_heads, head_dim]` holds keys and values; position j of sequence i lives in slot
`kv_indices[kv_indptr[i] + j]`. The keys of the new rows have been written already.
The result is `[rows, heads, head_dim]` in q's dtype.

`sliding_window=w` lets a query at position p see positions `(p - w, p]`. `softcap=c` maps a score
s to `c * tanh(s / c)`. Query head h reads KV head `h // (heads // kv_heads)`.
"""

from __future__ import annotations

import torch


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
    """The reference: one sequence at a time, in float32, with no tiling. Slow and plain."""
    group = q.shape[1] // kv.shape[2]
    out = torch.empty_like(q)
    for i in range(len(qo_indptr) - 1):
        first, last = int(qo_indptr[i]), int(qo_indptr[i + 1])
        slots = kv_indices[int(kv_indptr[i]) : int(kv_indptr[i + 1])].long()
        keys, values = (t[slots].float().repeat_interleave(group, dim=1) for t in (kv[0], kv[1]))
        at = torch.arange(len(slots) - (last - first), len(slots), device=q.device)[:, None]
        col = torch.arange(len(slots), device=q.device)[None, :]
        seen = col <= at
        if sliding_window is not None:
            seen &= col > at - sliding_window
        score = torch.einsum("qhd,khd->hqk", q[first:last].float(), keys) * scale
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        weight = torch.softmax(score.masked_fill(~seen, float("-inf")), dim=-1)
        out[first:last] = torch.einsum("hqk,khd->qhd", weight, values).to(q.dtype)
    return out
