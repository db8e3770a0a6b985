"""What every attention backend offers: plan once a batch, run once a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from agentkv.engine.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """The fixed facts of one layer's attention.

    `scale` multiplies the scores. `sliding_window=w` lets position p see `(p - w, p]`.
    `softcap=c` maps a score s to `c * tanh(s / c)`. Heads are grouped: query head h reads KV head
    `h // (num_heads // num_kv_heads)`.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    sliding_window: int | None = None
    softcap: float | None = None

    @property
    def group(self) -> int:
        """Query heads for each KV head."""
        return self.num_heads // self.num_kv_heads


class AttentionBackend(Protocol):
    """Attention of a batch's new tokens over their sequences' K/V in the pool.

    `plan` reads the batch's CSR tables (see `ForwardBatch`): rows `[qo_indptr[i],
    qo_indptr[i+1])` are the last positions of sequence i, whose position j lives in slot
    `kv_indices[kv_indptr[i] + j]`. Each sequence has at least one row. What it returns serves
    all layers of one step and nothing else.

    `run` takes `q [rows, num_heads, head_dim]` (rows may go on behind the planned ones: padding,
    whose output is unspecified but finite) and one layer of the pool `[2, slots, num_kv_heads,
    head_dim]`, the new tokens' K/V already in it. A pool of FP8 codes comes with `scales`, float32
    `[2, num_kv_heads]`, that turn them into numbers. It returns `[rows, num_heads * head_dim]` in
    q's dtype, valid until the next `run`.
    """

    bit_exact: bool
    """Whether a row's result depends on its own sequence only, to the last bit."""

    def plan(self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray) -> Any: ...

    def run(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        plan: Any,
        spec: AttentionSpec,
        scales: torch.Tensor | None = None,
    ) -> torch.Tensor: ...


class Tables(Protocol):
    """The host's half of a plan."""

    @property
    def tables(self) -> list[IntArray]:
        """What is needed of it on the device: int32, flat."""
        ...


@runtime_checkable
class Staged(Protocol):
    """A backend for an accelerator whose plan comes in two halves: its tables go to the device in
    between, in one copy with whatever else a step needs there."""

    def layout(self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray) -> Tables: ...

    def place(self, layout: Any, parts: Sequence[torch.Tensor]) -> Any:
        """The plan, from `layout.tables` on the device, which stay as they are for this step."""
        ...
