"""Finds out how this CPU's kernels treat their rows: the batched product, and the fused one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from agentkv.engine.attention import split
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.tiles import LANES, MASKED, TILE, FusedRule, RowRule

_STEPS = (1, 2, 4, 8, 16)
_COUNTS = (
    *range(1, 14),
    15,
    16,
    20,
    24,
    28,
    31,
    32,
    33,
    36,
    48,
    64,
    65,
    96,
    100,
    128,
    132,
    192,
    255,
    256,
    260,
    384,
)
_FUSED_COUNTS = (*_COUNTS[:-1], 188, 196, 257, 272, 320, 384, 516, 764, 768, 772, 1040)
"""The fused kernel cuts its rows into blocks of 32, 64 (from 192 on) or 256 (from 768 on)."""
_FIXED = 16
_WIDTHS = (64, 128, 192)


def row_rule(spec: AttentionSpec) -> tuple[RowRule, bool]:
    """Which row counts a product needs, and whether results are then exact to the last bit.

    Tries padding first (to a multiple of a small step); where such counts differ too, calls of one
    fixed row count, which cannot differ. The fused kernel is left alone where no small step makes
    it exact. Takes some tens of milliseconds.
    """
    return _rule(spec.num_kv_heads, spec.head_dim, torch.get_num_threads())


@lru_cache(maxsize=64)
def _rule(kv_heads: int, dim: int, threads: int) -> tuple[RowRule, bool]:
    with torch.inference_mode():
        exact = _softmax_ignores_hidden(kv_heads, TILE)
        differing = _differing(kv_heads, dim)
        for step in _STEPS:
            if not any(count % step == 0 for count in differing):
                narrow = _narrow(_product_is_narrow, kv_heads, dim, step)
                return RowRule(step, narrow=narrow, fused=_fused_rule(kv_heads, dim)), exact
        return RowRule(_FIXED, fixed=True, fused=_fused_rule(kv_heads, dim)), exact


def _fused_rule(kv_heads: int, dim: int) -> FusedRule | None:
    """The rule of the fused kernel, or None where it, or the sum over tiles, is not exact."""
    if not _softmax_ignores_hidden(kv_heads, LANES):
        return None
    if not _mask_is_only_added(kv_heads, dim):
        return None
    differing = _fused_differing(kv_heads, dim)
    for step in _STEPS:
        if not any(count % step == 0 for count in differing):
            return FusedRule(step, _narrow(_fused_is_narrow, kv_heads, dim, step))
    return None


def _pool(kv_heads: int, dim: int, tiles: int, maker: torch.Generator) -> torch.Tensor:
    """K and V as they are in use, views of a pool: `[2, tiles, kv_heads, TILE, head_dim]`."""
    pool = torch.randn(2, tiles * TILE + 16, kv_heads, dim, generator=maker)
    cut: torch.Tensor = pool[:, 7 : 7 + tiles * TILE].unflatten(1, (tiles, TILE))
    return cut.transpose(2, 3)


def _fused_differing(kv_heads: int, dim: int) -> list[int]:
    """Row counts whose results differ from those of one large call over two tiles."""
    maker = torch.Generator().manual_seed(0)
    rows = max(_FUSED_COUNTS) + 4
    keys, values = _pool(kv_heads, dim, 2, maker)
    query = torch.randn(1, kv_heads, rows, dim, generator=maker)
    result, weight = split.fused(query.expand(2, -1, -1, -1), keys, values, None, 0.125)
    found = []
    for count in _FUSED_COUNTS:
        part = slice(rows - count, rows)
        got = split.fused(query[:, :, part], keys[1:], values[1:], None, 0.125)
        if not (
            torch.equal(got[0], result[1:, :, part]) and torch.equal(got[1], weight[1:, :, part])
        ):
            found.append(count)
    return found


def _mask_is_only_added(kv_heads: int, dim: int) -> bool:
    """Whether a mask of zeros gives what no mask gives, and one that hides a tile hides it."""
    maker = torch.Generator().manual_seed(3)
    keys, values = _pool(kv_heads, dim, 1, maker)
    for rows in (16, 80, 208):
        query = torch.randn(1, kv_heads, rows, dim, generator=maker)
        mask = torch.zeros(1, 1, rows, TILE)
        mask[:, :, rows // 2 :] = MASKED
        bare = split.fused(query, keys, values, None, 0.125)
        got = split.fused(query, keys, values, mask, 0.125)
        for a, b in zip(bare, got, strict=True):
            if not torch.equal(a[:, :, : rows // 2], b[:, :, : rows // 2]):
                return False
        behind = got[1][:, :, rows // 2 :]
        if not (bool(torch.isfinite(got[0]).all()) and bool((behind < MASKED / 2).all())):
            return False
    return True


def _differing(kv_heads: int, dim: int) -> list[int]:
    """Row counts whose products differ from those of one large call."""
    maker = torch.Generator().manual_seed(0)
    rows = _COUNTS[-1]
    pool = _pool(kv_heads, dim, 1, maker)[:, 0]
    query = torch.randn(kv_heads, rows, dim, generator=maker)
    # As they are in use: scores are part of a longer row.
    weight = torch.rand(kv_heads, rows, 2 * TILE, generator=maker)[..., TILE:]
    keys, values = pool[0].transpose(1, 2), pool[1]
    scores, sums = torch.bmm(query, keys), torch.bmm(weight, values)
    found = []
    for count in _COUNTS[:-1]:
        part = slice(rows - count, rows)
        same = torch.equal(torch.bmm(query[:, part], keys), scores[:, part])
        if not (same and torch.equal(torch.bmm(weight[:, part], values), sums[:, part])):
            found.append(count)
    return found


def _narrow(
    same: Callable[[torch.Tensor, torch.Tensor, int, torch.Generator], bool],
    kv_heads: int,
    dim: int,
    step: int,
) -> tuple[int, ...]:
    """How many first columns of a tile give what the whole tile gives with the rest hidden.

    A library that adds up a long inner axis in blocks gives the same sums up to the first block.
    """
    maker = torch.Generator().manual_seed(2)
    pool = _pool(kv_heads, dim, 1, maker)[:, 0]
    good = set(_WIDTHS)
    for rows in sorted({max(4, step), 2 * max(4, step), 32}):
        query = torch.randn(kv_heads, rows, dim, generator=maker)
        for width in _WIDTHS:
            if not same(query, pool, width, maker):
                good.discard(width)
    return tuple(sorted(good))


def _product_is_narrow(
    query: torch.Tensor, pool: torch.Tensor, width: int, maker: torch.Generator
) -> bool:
    keys, values = pool[0].transpose(1, 2), pool[1]
    weight = torch.rand(*query.shape[:2], TILE, generator=maker)
    weight[..., width - 13 :] = 0
    few = torch.bmm(weight[..., :width], values[:, :width])
    return torch.equal(
        torch.bmm(query, keys[..., :width]), torch.bmm(query, keys)[..., :width]
    ) and torch.equal(few, torch.bmm(weight, values))


def _fused_is_narrow(
    query: torch.Tensor, pool: torch.Tensor, width: int, maker: torch.Generator
) -> bool:
    seen = width - int(torch.randint(0, 14, (), generator=maker))
    mask = torch.zeros(1, 1, query.shape[1], TILE)
    mask[..., seen:] = MASKED
    keys, values = pool[0][None], pool[1][None]
    few = split.fused(
        query[None], keys[:, :, :width], values[:, :, :width], mask[..., :width], 0.125
    )
    whole = split.fused(query[None], keys, values, mask, 0.125)
    return torch.equal(few[0], whole[0]) and torch.equal(few[1], whole[1])


def _softmax_ignores_hidden(kv_heads: int, size: int) -> bool:
    """Whether whole hidden runs of `size` before or behind leave a row's softmax as it is."""
    maker = torch.Generator().manual_seed(1)
    row = torch.randn(kv_heads, 4, size, generator=maker) * 3
    row[..., size - size // 5 :] = MASKED
    alone = torch.softmax(row, dim=-1)
    for before in (0, 1, 2):
        for behind in (0, 1, 2, 5, 13):
            wide = torch.full((kv_heads, 4, (before + 1 + behind) * size), MASKED)
            own = slice(before * size, (before + 1) * size)
            wide[..., own] = row
            got = torch.softmax(wide, dim=-1)[..., own]
            if not torch.equal(got, alone):
                return False
    return True
