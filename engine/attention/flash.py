"""Half precision: torch's own fused attention, one or two calls a sequence.

    positions    0 ............ p-1 | p ........ length-1
                 cached, all seen   |  new rows, causal among themselves

Each part is one call (in place where its slots are one run, gathered first otherwise); the two are
merged by their log-sum-exps (Dao et al., "FlashAttention", 2022, and its split variants). Faster
than float32 tiles where the CPU multiplies bfloat16 in hardware, but its rounding depends on where
the prefill was cut, so float32 does not take this way. Nor do sequences that decode together on
one long prefix: tiles read that prefix once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from agentkv.engine.attention.base import AttentionSpec

DTYPES = (torch.bfloat16, torch.float16)


MAX_RUNS = 16
"""Up to so many runs of slots are copied one by one; more, and an indexed gather is faster."""


@dataclass(frozen=True, slots=True)
class Span:
    """Positions of a sequence: runs `(start, end)` of slots in order, or the listed slots."""

    runs: tuple[tuple[int, int], ...]
    slots: torch.Tensor | None

    @classmethod
    def of(cls, slots: npt.NDArray[np.int64]) -> Span:
        cuts = np.flatnonzero(np.diff(slots) != 1)
        if len(cuts) >= MAX_RUNS:
            return cls((), torch.from_numpy(slots))
        starts = [int(slots[0]), *slots[cuts + 1].tolist()]
        ends = [*(slots[cuts] + 1).tolist(), int(slots[-1]) + 1]
        return cls(tuple(zip(starts, ends, strict=True)), None)

    def read(self, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V, `[1, kv_heads, count, head_dim]` each."""
        if self.slots is not None:
            part = kv.index_select(1, self.slots)
        elif len(self.runs) == 1:
            part = kv[:, slice(*self.runs[0])]
        else:
            part = torch.cat([kv[:, slice(*run)] for run in self.runs], dim=1)
        part = part.transpose(1, 2)
        return part[0:1], part[1:2]


@dataclass(frozen=True, slots=True)
class Sequence:
    """New rows `rows` of the token axis. `seen`: positions that all of them see, or None; `new`:
    their own positions, causal, or None (a single row sees all of its sequence)."""

    rows: slice
    seen: Span | None
    new: Span | None

    @classmethod
    def of(cls, rows: slice, slots: npt.NDArray[np.int64]) -> Sequence:
        count = rows.stop - rows.start
        if count == 1:
            return cls(rows, Span.of(slots), None)
        before = len(slots) - count
        return cls(rows, Span.of(slots[:before]) if before else None, Span.of(slots[before:]))


def suits(q: torch.Tensor, kv: torch.Tensor, spec: AttentionSpec) -> bool:
    """Whether this way can be taken at all."""
    plain = spec.sliding_window is None and spec.softcap is None
    return plain and kv.dtype == q.dtype and q.dtype in DTYPES


def run(
    q: torch.Tensor, kv: torch.Tensor, sequence: Sequence, spec: AttentionSpec, out: torch.Tensor
) -> None:
    """Write the attention of `sequence.rows` to the same rows of `out`, both
    `[rows, heads, head_dim]`."""
    query = q[sequence.rows]
    if sequence.new is None:
        assert sequence.seen is not None
        found = _seen(query, sequence.seen, kv, spec)[0]
    else:
        found, weight = _causal(query, sequence.new, kv, spec)
        if sequence.seen is not None:
            before, behind = _seen(query, sequence.seen, kv, spec)
            share = torch.sigmoid(weight - behind)[..., None]  # exp(w) / (exp(w) + exp(b))
            found = torch.lerp(before.float(), found.float(), share)
    out[sequence.rows].copy_(found)


def _causal(
    query: torch.Tensor, span: Span, kv: torch.Tensor, spec: AttentionSpec
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[rows, heads, head_dim]`, and the log-sum-exps `[rows, heads]`."""
    found, weight = _flash(query.transpose(0, 1)[None], span.read(kv), spec, causal=True)
    return found[0].transpose(0, 1), weight[0].transpose(0, 1)


def _seen(
    query: torch.Tensor, span: Span, kv: torch.Tensor, spec: AttentionSpec
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_causal`, where every row sees everything: the query heads of a KV head then are rows
    of one product, which beats one product for each of them."""
    rows, (kv_heads, group) = query.shape[0], (spec.num_kv_heads, spec.group)
    grouped = query.unflatten(1, (kv_heads, group)).transpose(0, 1).flatten(1, 2)[None]
    found, weight = _flash(grouped, span.read(kv), spec, causal=False)
    found = found[0].unflatten(1, (rows, group)).transpose(0, 1).flatten(1, 2)
    return found, weight[0].unflatten(1, (rows, group)).transpose(0, 1).flatten(1, 2)


def _flash(
    query: torch.Tensor, kv: tuple[torch.Tensor, torch.Tensor], spec: AttentionSpec, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    found: tuple[torch.Tensor, torch.Tensor]
    found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, *kv, 0.0, causal, scale=spec.scale
    )
    return found
