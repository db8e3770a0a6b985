"""Prefill in half precision: torch's own fused attention over the two parts of a sequence.

    positions    0 ............ p-1 | p ........ length-1
                 cached, all seen   |  new rows, causal among themselves

Each part is one call (in place where its slots are one run, gathered once otherwise); the two are
merged by their log-sum-exps (Dao et al., "FlashAttention", 2022, and its split variants). Several
times faster than float32 tiles where the CPU multiplies bfloat16 in hardware, but its rounding
depends on where the prefill was cut, so float32 does not take this way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from agentkv.engine.attention.base import AttentionSpec

MIN_ROWS = 16
"""New rows from which a sequence is worth calls of its own."""

DTYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Span:
    """Positions of a sequence: the run `[start, start + count)` of slots, or the listed slots."""

    start: int
    count: int
    slots: torch.Tensor | None

    @classmethod
    def of(cls, slots: npt.NDArray[np.int64]) -> Span:
        run = bool((np.diff(slots) == 1).all())
        return cls(int(slots[0]), len(slots), None if run else torch.from_numpy(slots))

    def read(self, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V, `[1, kv_heads, count, head_dim]` each."""
        part = (
            kv[:, self.start : self.start + self.count]
            if self.slots is None
            else kv.index_select(1, self.slots)
        )
        part = part.transpose(1, 2)
        return part[0:1], part[1:2]


@dataclass(frozen=True, slots=True)
class Prefill:
    """New rows `rows` of the token axis; `cached` is None when the sequence starts with them."""

    rows: slice
    cached: Span | None
    new: Span


def suits(q: torch.Tensor, kv: torch.Tensor, spec: AttentionSpec) -> bool:
    """Whether this way can be taken at all."""
    plain = spec.sliding_window is None and spec.softcap is None
    return plain and kv.dtype == q.dtype and q.dtype in DTYPES


def run(
    q: torch.Tensor, kv: torch.Tensor, prefill: Prefill, spec: AttentionSpec, out: torch.Tensor
) -> None:
    """Write the attention of `prefill.rows` to the same rows of `out`, both `[rows, heads, dim]`."""
    query = q[prefill.rows].transpose(0, 1)[None]
    found, weight = _part(query, prefill.new, kv, spec, causal=True)
    if prefill.cached is not None:
        before, behind = _part(query, prefill.cached, kv, spec, causal=False)
        share = torch.sigmoid(weight - behind)[..., None]  # exp(w) / (exp(w) + exp(b))
        found = torch.lerp(before.float(), found.float(), share)
    out[prefill.rows].copy_(found[0].transpose(0, 1))


def _part(
    query: torch.Tensor, span: Span, kv: torch.Tensor, spec: AttentionSpec, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over one part, `[1, heads, rows, dim]`, and its log-sum-exp, `[1, heads, rows]`."""
    keys, values = span.read(kv)
    found: tuple[torch.Tensor, torch.Tensor] = (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys, values, 0.0, causal, scale=spec.scale
        )
    )
    return found
