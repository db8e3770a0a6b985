"""Attention over a block's tiles by torch's own fused kernel: each tile alone, then merged.

    tiles of a row      0       1       2
    fused calls       o0,l0   o1,l1   o2,l2       o: attention within the tile, l: log-sum-exp
    merged            softmax(l0, l1, l2) . (o0, o1, o2)

(Dao et al., "Flash-Decoding", 2023.) Tiles that follow each other in the pool are one call, a batch
of them, so that a sequence costs a few calls and its K and V are read once. What makes a row's
result depend on its own sequence only:

1. The kernel takes each member of its batch on its own, so a tile's outcome is the same whichever
   tiles share its call; and it treats rows alike at the counts of `FusedRule` (probed).
2. A hidden tile has a log-sum-exp of -1e30, so that it weighs exactly 0; the softmax over tiles
   adds lane by lane, as in products.py, and a tile keeps its lane (`LANES`).
3. The sum over tiles runs in tile order, of separate products and sums: a tile that a row does not
   see adds an exact 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.reading import Source, sources
from agentkv.engine.attention.scratch import Scratch
from agentkv.engine.attention.tiles import LANES, MASKED, Block, round_up

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@dataclass(slots=True)
class _Read:
    """One call, over `[count, kv_heads, rows, head_dim]`: `query` and `mask` repeat along the count.

    Its share of the block: `weight` (log-sum-exps), `share` (what they come to, with an axis for
    `head_dim`) and `part`.
    """

    source: Source
    query: torch.Tensor
    mask: torch.Tensor | None
    weight: torch.Tensor
    share: torch.Tensor
    part: torch.Tensor


@dataclass(slots=True)
class Work:
    """A block's buffers. `weights` and `shares`: `[score rows, kv_heads, columns and more]`. `gaps`:
    the results of those columns that some row does not read. `parts`: the results of each column,
    which are added up in the first, `result`: all `[kv_heads, score rows, head_dim]`."""

    weights: torch.Tensor
    shares: torch.Tensor
    gaps: torch.Tensor | None
    reads: list[_Read]
    parts: list[torch.Tensor]
    result: torch.Tensor


def prepare(block: Block, query: torch.Tensor, kv: torch.Tensor, scratch: Scratch) -> Work:
    """Views that all layers share; made once a step."""
    heads, rows, dim = query.shape
    columns = block.columns
    lanes = round_up(max(t.lane + t.column + t.count for t in block.tiles), LANES)
    weights = torch.full((rows, heads, lanes), MASKED)
    shares = torch.empty_like(weights)
    parts = scratch.take("parts", (columns, rows, heads, dim))
    weight, share = weights.permute(2, 1, 0), shares.permute(2, 1, 0)[..., None]
    part = parts.transpose(1, 2)
    reads = []
    filled = [0] * columns
    for tile in block.tiles:
        low, high = block.span(tile)
        for source in sources(tile, kv, scratch):
            own = slice(tile.column + source.first, tile.column + source.first + source.count)
            for column in range(own.start, own.stop):
                filled[column] += high - low
            mask = tile.mask
            if mask is not None:
                repeated = mask.dim() == 2
                mask = mask[None] if repeated else mask[source.first :][: source.count]
                mask = mask[:, None].expand(source.count, 1, high - low, tile.width)
            lane = slice(own.start + tile.lane, own.stop + tile.lane)
            reads.append(
                _Read(
                    source=source,
                    query=query[None, :, low:high].expand(source.count, -1, -1, -1),
                    mask=mask,
                    weight=weight[lane, :, low:high],
                    share=share[lane, :, low:high],
                    part=part[own, :, low:high],
                )
            )
    gap = next((column for column, count in enumerate(filled) if count < rows), None)
    gaps = None if gap is None else parts[gap:]
    return Work(weights, shares, gaps, reads, list(part), part[0])


def run(kv: torch.Tensor, work: Work, spec: AttentionSpec) -> None:
    """Leave the attention of the block's query in `work.result`."""
    found = []
    for read in work.reads:
        keys, values = read.source.read(kv, 0), read.source.read(kv, 1)
        result, weight = fused(read.query, keys, values, read.mask, spec.scale)
        read.weight.copy_(weight)
        found.append(result)
    torch.softmax(work.weights, dim=-1, out=work.shares)
    if work.gaps is not None:
        work.gaps.zero_()
    for read, result in zip(work.reads, found, strict=True):
        torch.mul(result, read.share, out=read.part)
    for part in work.parts[1:]:
        work.result.add_(part)


def fused(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`query [n, heads, rows, head_dim]`, keys and values `[n, heads, width, head_dim]`, all float32;
    `mask`, which is added to the scores, `[n, 1, rows, width]`."""
    found: tuple[torch.Tensor, torch.Tensor] = _FLASH(
        query, keys, values, 0.0, False, attn_mask=mask, scale=scale
    )
    return found
