"""Whether a kernel's answer is that of its reference, computed apart from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentkv.bench.device_batch import Batch
from agentkv.kernels.paged_attention import attention_reference

LIMITS = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Largest difference that is let pass, relative to the largest number, by dtype of the queries."""

ROWS = 64
"""Queries that are compared at the beginning and at the end of a prompt."""

SEQUENCES = 6


@dataclass(frozen=True, slots=True)
class Agreement:
    """`error`: the largest difference relative to the largest number of the reference."""

    error: float
    limit: float

    @property
    def ok(self) -> bool:
        return self.error <= self.limit  # NaN is not


def agreement(out: torch.Tensor, expected: torch.Tensor, limit: float | None = None) -> Agreement:
    """Compare in float32. `limit`: by default what `out`'s dtype allows."""
    wide, exact = out.float(), expected.float()
    most = float(exact.abs().max()) or 1.0
    error = float((wide - exact).abs().max()) / most
    return Agreement(error, LIMITS[out.dtype] if limit is None else limit)


def attention(batch: Batch, out: torch.Tensor) -> Agreement:
    """A kernel's `out` for a batch, on some of its sequences, at both ends of their new tokens."""
    chosen = sorted({round(i * (len(batch.lens) - 1) / SEQUENCES) for i in range(SEQUENCES + 1)})
    got, wanted = [], []
    for i in chosen:
        new, stop = int(batch.new[i]), int(batch.tables[0][i + 1])
        rows = min(ROWS, new)
        for before in sorted({0, new - rows}):
            one = batch.end(i, rows, before)
            expected, _ = attention_reference(one.q.float(), one.kv, one.paged, **one.rule())
            got.append(out[stop - before - rows : stop - before])
            wanted.append(expected)
    return agreement(torch.cat(got), torch.cat(wanted))
