"""Paged attention on CPU, whose rows depend on their own sequences only (in float32).

Each sequence is cut into fixed tiles (tiles.py), and a row goes one of two ways over them: torch's
fused attention tile by tile, merged afterwards (split.py), or, in the first tile of its sequence,
two products and one softmax (products.py). Which way is a matter of its position, so that it too
depends on its own sequence only.

Half-precision and FP8 pools are widened a few tiles at a time; scores, weights and sums are float32
throughout. The scales of FP8 are those of a KV head: K's multiplies the query, V's the result.
Most sequences of half precision take the faster way of flash.py, which does not promise the last
bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentkv.engine.attention import flash, products, split
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.plan import TilePlan
from agentkv.engine.attention.scratch import Scratch
from agentkv.engine.attention.tiles import Block, RowRule
from agentkv.engine.types import IntArray
from agentkv.kernels import fp8


@dataclass(slots=True)
class _Work:
    """A block's query `[kv_heads, score rows, head_dim]`, and `view`, where queries go in it:
    `[kv_heads, count, group, head_dim]`; `picked`, where the same rows of the result come from:
    `[count, kv_heads, group, head_dim]`."""

    query: torch.Tensor
    view: torch.Tensor
    picked: torch.Tensor
    way: products.Work | split.Work


class CpuAttention:
    """`AttentionBackend` for CPU tensors. Not thread-safe: it owns the buffers of a step."""

    def __init__(self, rule: RowRule | None = None, *, bit_exact: bool = True) -> None:
        self.rule = rule or RowRule()
        self.bit_exact = bit_exact
        self.scratch = Scratch()

    def plan(self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray) -> TilePlan:
        return TilePlan(qo_indptr, kv_indptr, kv_indices, self.rule)

    def run(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        plan: TilePlan,
        spec: AttentionSpec,
        scales: torch.Tensor | None = None,
    ) -> torch.Tensor:
        rows, heads, dim = q.shape
        out = self.scratch.take("out", (rows, heads, dim), q.dtype)
        if rows > plan.rows:
            out[plan.rows :].zero_()
        grouped = out.view(rows, spec.num_kv_heads, spec.group, dim)
        whole = flash.suits(q, kv, spec)
        if whole:
            for sequence in plan.whole():
                flash.run(q, kv, sequence, spec, out)
        q = q.view(rows, spec.num_kv_heads, spec.group, dim)
        factors = None if scales is None else (scales * fp8.UNIT)[:, :, None, None]
        for block in plan.blocks(spec, whole=whole):
            if block.work is None:
                block.work = self._prepare(block, kv, spec)
            self._block(q, kv, block, block.work, spec, grouped, factors)
        return out.view(rows, heads * dim)

    def _prepare(self, block: Block, kv: torch.Tensor, spec: AttentionSpec) -> _Work:
        heads, dim = spec.num_kv_heads, spec.head_dim
        query = self.scratch.take("query", (heads, block.score_rows, dim))
        way: products.Work | split.Work
        if block.fused:
            way = split.prepare(block, query, kv, self.scratch)
        else:
            way = products.prepare(block, query, kv, self.scratch)
        picked = _rows(way.result, block, spec).transpose(0, 1)
        return _Work(query, _rows(query, block, spec), picked, way)

    def _block(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        block: Block,
        work: _Work,
        spec: AttentionSpec,
        out: torch.Tensor,
        factors: torch.Tensor | None,
    ) -> None:
        """`factors`: of codes as `fp8.widen` gives them, `[2, kv_heads, 1, 1]`."""
        if work.view.numel() != work.query.numel():
            work.query.zero_()
        if factors is None:
            work.view.copy_(q[block.rows].transpose(0, 1))
        else:
            torch.mul(q[block.rows].transpose(0, 1), factors[0, ..., None], out=work.view)
        if isinstance(work.way, split.Work):
            split.run(kv, work.way, spec)
        else:
            products.run(kv, block, work.way, spec, self.rule)
        if factors is not None:
            work.way.result.mul_(factors[1])
        if isinstance(block.rows, slice):
            out[block.rows].copy_(work.picked)
        else:
            out.index_copy_(0, block.rows, work.picked.to(out.dtype))


def _rows(scored: torch.Tensor, block: Block, spec: AttentionSpec) -> torch.Tensor:
    """The token rows among score rows `[kv_heads, score rows, head_dim]`, as a view
    `[kv_heads, count, group, head_dim]`."""
    rows: torch.Tensor = scored[:, : block.count * block.per].unflatten(1, (block.count, block.per))
    return rows[:, :, : spec.group]
