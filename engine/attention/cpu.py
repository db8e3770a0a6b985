"""Paged attention on CPU: fixed tiles, strided views, one softmax call a block.

Two properties make a row's result depend on its own sequence only:

1. Both products always have the same inner and column sizes (a whole tile), and a row count for
   which the library's kernels treat rows alike (`rule`: probed, not assumed).
2. Hidden positions weigh exactly 0. The softmax of a row that is longer by whole hidden tiles is
   then the same to the last bit (the kernel adds lane by lane, and 0 adds nothing), and so is the
   sum over tiles, which runs in tile order and in float32.

Half-precision and FP8 pools are widened tile by tile; scores, weights and sums are float32
throughout. The scales of FP8 are those of a KV head: K's multiplies the query, V's the result.
Most sequences of half precision take the faster way of flash.py, which does not promise the last
bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from agentkv.engine.attention import flash
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.tiles import MASKED, TILE, Block, RowRule, TilePlan
from agentkv.engine.types import IntArray
from agentkv.kernels import fp8


@dataclass(slots=True)
class _Read:
    """One tile of a block, with the views of the step's buffers that it works on.

    `raw` and `part` are contiguous products (torch's fast batched path wants that), which are
    then scaled and masked into `score`, and added to `result`.
    """

    start: int
    width: int
    slots: torch.Tensor | None
    mask: torch.Tensor
    query: torch.Tensor
    raw: torch.Tensor
    score: torch.Tensor
    part: torch.Tensor
    result: torch.Tensor


@dataclass(slots=True)
class _Work:
    """A block's buffers. `view` is where queries go: `[kv_heads, count, group, head_dim]`."""

    query: torch.Tensor
    view: torch.Tensor
    score: torch.Tensor
    result: torch.Tensor
    picked: torch.Tensor
    reads: list[_Read]


class CpuAttention:
    """`AttentionBackend` for CPU tensors. Not thread-safe: it owns the buffers of a step."""

    def __init__(self, rule: RowRule | None = None, *, bit_exact: bool = True) -> None:
        self.rule = rule or RowRule()
        self.bit_exact = bit_exact
        self._visible = torch.zeros(1, TILE)
        self._buffers: dict[str, torch.Tensor] = {}

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
        out = self._buffer("out", (rows, heads, dim), q.dtype)
        if rows > plan.rows:
            out[plan.rows :].zero_()
        grouped = out.view(rows, spec.num_kv_heads, spec.group, dim)
        fused = flash.suits(q, kv, spec)
        if fused:
            for sequence in plan.fused():
                flash.run(q, kv, sequence, spec, out)
        q = q.view(rows, spec.num_kv_heads, spec.group, dim)
        factors = None if scales is None else (scales * fp8.UNIT)[:, :, None, None]
        for block in plan.blocks(spec.sliding_window, spec.group, fused=fused):
            if block.work is None:
                block.work = self._prepare(block, spec)
            self._block(q, kv, block, block.work, spec, grouped, factors)
        return out.view(rows, heads * dim)

    def _prepare(self, block: Block, spec: AttentionSpec) -> _Work:
        """Views that all layers share; made once a step, since making them costs more than
        some of the products."""
        heads, group, dim = spec.num_kv_heads, spec.group, spec.head_dim
        rows, used = block.score_rows, block.count * block.per
        query = self._buffer("query", (heads, rows, dim))
        score = self._buffer("score", (heads, rows, block.columns * TILE))
        result = self._buffer("result", (heads, rows, dim))
        reads = []
        for tile in block.tiles:
            low = tile.lo * block.per
            high = rows if tile.hi == block.count else tile.hi * block.per
            reads.append(
                _Read(
                    start=tile.start,
                    width=tile.width,
                    slots=tile.slots,
                    mask=self._visible if tile.mask is None else tile.mask,
                    query=query[:, low:high],
                    raw=self._buffer("raw", (heads, high - low, tile.width)),
                    score=score[:, low:high, tile.column * TILE :][..., : tile.width],
                    part=self._buffer("part", (heads, high - low, dim)),
                    result=result[:, low:high],
                )
            )
        return _Work(
            query=query,
            view=query[:, :used].view(heads, block.count, block.per, dim)[:, :, :group],
            score=score,
            result=result,
            picked=result[:, :used]
            .view(heads, block.count, block.per, dim)[:, :, :group]
            .transpose(0, 1),
            reads=reads,
        )

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
        if block.ragged:
            work.score.fill_(MASKED)
        keys, values = kv[0], kv[1]
        for read in work.reads:
            self._product(read.query, self._tile(keys, read).permute(1, 2, 0), read.raw)
            if spec.softcap is not None:
                read.raw.mul_(spec.scale / spec.softcap).tanh_()
            factor = spec.scale if spec.softcap is None else spec.softcap
            torch.add(read.mask, read.raw, alpha=factor, out=read.score)
        torch.softmax(work.score, dim=-1, out=work.score)
        work.result.zero_()
        for read in work.reads:
            self._product(read.score, self._tile(values, read).permute(1, 0, 2), read.part)
            read.result.add_(read.part)
        if factors is not None:
            work.result.mul_(factors[1])
        if isinstance(block.rows, slice):
            out[block.rows].copy_(work.picked)
        else:
            out.index_copy_(0, block.rows, work.picked.to(out.dtype))

    def _tile(self, kv: torch.Tensor, read: _Read) -> torch.Tensor:
        """A tile of K or V, float32 `[width, kv_heads, head_dim]`, valid until the next call; of
        FP8, its codes / `fp8.UNIT`."""
        # A view may run past the sequence into slots that hold other requests' tokens, or none
        # yet. They are masked, and finite (see KVPool), so that 0 times them is 0.
        codes = kv.dtype == fp8.FP8
        if codes:
            kv = kv.view(torch.int8)
        if read.slots is None:
            part = kv[read.start : read.start + read.width]
        else:
            gathered = self._buffer("gathered", (read.width, *kv.shape[1:]), kv.dtype)
            part = torch.index_select(kv, 0, read.slots, out=gathered)
        if part.dtype == torch.float32:
            return part
        wide = self._buffer("widened", tuple(part.shape))
        if codes:
            return fp8.widen(part, wide, self._buffer("bits", tuple(part.shape), torch.int16))
        return wide.copy_(part)

    def _product(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """out = a @ b, batched over KV heads."""
        if not self.rule.fixed:
            torch.bmm(a, b, out=out)
            return
        step = self.rule.step
        for low in range(0, a.shape[1], step):
            part = slice(low, low + step)
            out[:, part] = torch.bmm(a[:, part], b)

    def _buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Scratch of a step: grown on demand, shared by all layers, never given back."""
        need = math.prod(shape)
        flat = self._buffers.get(name)
        if flat is None or flat.numel() < need or flat.dtype != dtype:
            flat = self._buffers[name] = torch.zeros(need, dtype=dtype)
        return flat[:need].view(shape)
