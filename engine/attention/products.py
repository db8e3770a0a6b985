"""Attention over a block's tiles as two batched products a tile, with one softmax call a block.

The general way: for rows that see one tile only, where it costs least, for capped scores
(`softcap`), and where torch's fused attention does not treat rows alike (see split.py). Two properties make a row's result depend on its own sequence
only:

1. Both products always have the same inner and column sizes (a whole tile), and a row count for
   which the library's kernels treat rows alike (`rule`: probed, not assumed).
2. Hidden positions weigh exactly 0. The softmax of a row that is longer by whole hidden tiles is
   then the same to the last bit (the kernel adds lane by lane, and 0 adds nothing), and so is the
   sum over tiles, which runs in tile order and in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.reading import Source
from agentkv.engine.attention.scratch import Scratch
from agentkv.engine.attention.tiles import MASKED, TILE, Block, RowRule

_VISIBLE = torch.zeros(1, TILE)


@dataclass(slots=True)
class _Read:
    """One tile of a block, with the views of the step's buffers that it works on.

    `raw` and `part` are contiguous products (torch's fast batched path wants that), which are
    then scaled and masked into `score`, and added to `result`.
    """

    source: Source
    mask: torch.Tensor
    query: torch.Tensor
    raw: torch.Tensor
    score: torch.Tensor
    part: torch.Tensor
    result: torch.Tensor


@dataclass(slots=True)
class Work:
    """A block's buffers: `query` and `result` are `[kv_heads, score rows, head_dim]`."""

    query: torch.Tensor
    score: torch.Tensor
    result: torch.Tensor
    reads: list[_Read]


def prepare(block: Block, query: torch.Tensor, kv: torch.Tensor, scratch: Scratch) -> Work:
    """Views that all layers share; made once a step, since making them costs more than some of
    the products."""
    heads, rows, dim = query.shape
    score = scratch.take("score", (heads, rows, block.columns * TILE))
    result = scratch.take("result", (heads, rows, dim))
    reads = []
    for tile in block.tiles:
        low, high = block.span(tile)
        reads.append(
            _Read(
                source=Source(tile, 0, 1, kv, scratch, one=True),
                mask=_VISIBLE if tile.mask is None else tile.mask,
                query=query[:, low:high],
                raw=scratch.take("raw", (heads, high - low, tile.width)),
                score=score[:, low:high, tile.column * TILE :][..., : tile.width],
                part=scratch.take("part", (heads, high - low, dim)),
                result=result[:, low:high],
            )
        )
    return Work(query, score, result, reads)


def run(kv: torch.Tensor, block: Block, work: Work, spec: AttentionSpec, rule: RowRule) -> None:
    """Leave the attention of `work.query` in `work.result`."""
    if block.ragged:
        work.score.fill_(MASKED)
    for part in work.reads:
        keys = part.source.read(kv, 0)
        _product(part.query, keys.transpose(1, 2), part.raw, rule)
        if spec.softcap is not None:
            part.raw.mul_(spec.scale / spec.softcap).tanh_()
        factor = spec.scale if spec.softcap is None else spec.softcap
        torch.add(part.mask, part.raw, alpha=factor, out=part.score)
    torch.softmax(work.score, dim=-1, out=work.score)
    work.result.zero_()
    for part in work.reads:
        values = part.source.read(kv, 1)
        _product(part.score, values, part.part, rule)
        part.result.add_(part.part)


def _product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, rule: RowRule) -> None:
    """out = a @ b, batched over KV heads."""
    if not rule.fixed:
        torch.bmm(a, b, out=out)
        return
    for low in range(0, a.shape[1], rule.step):
        part = slice(low, low + rule.step)
        out[:, part] = torch.bmm(a[:, part], b)
