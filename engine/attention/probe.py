"""Finds out how this CPU's batched product treats its rows."""

from __future__ import annotations

from functools import lru_cache

import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.tiles import MASKED, TILE, RowRule

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
_FIXED = 16
_WIDTHS = (64, 128, 192)


def row_rule(spec: AttentionSpec) -> tuple[RowRule, bool]:
    """Which row counts a product needs, and whether results are then exact to the last bit.

    Tries padding first (to a multiple of a small step); where such counts differ too, calls of one
    fixed row count, which cannot differ. Takes some milliseconds.
    """
    return _rule(spec.num_kv_heads, spec.head_dim, torch.get_num_threads())


@lru_cache(maxsize=64)
def _rule(kv_heads: int, dim: int, threads: int) -> tuple[RowRule, bool]:
    with torch.inference_mode():
        exact = _softmax_ignores_hidden(kv_heads)
        differing = _differing(kv_heads, dim)
        for step in _STEPS:
            if not any(count % step == 0 for count in differing):
                return RowRule(step=step, narrow=_narrow(kv_heads, dim, step)), exact
    return RowRule(step=_FIXED, fixed=True), exact


def _differing(kv_heads: int, dim: int) -> list[int]:
    """Row counts whose results differ from those of one large call."""
    maker = torch.Generator().manual_seed(0)
    rows = _COUNTS[-1]
    pool = torch.randn(2, TILE + 16, kv_heads, dim, generator=maker)
    query = torch.randn(kv_heads, rows, dim, generator=maker)
    # As they are in use: K and V are views of the pool, scores part of a longer row.
    weight = torch.rand(kv_heads, rows, 2 * TILE, generator=maker)[..., TILE:]
    keys, values = pool[0, 7 : 7 + TILE].permute(1, 2, 0), pool[1, 7 : 7 + TILE].permute(1, 0, 2)
    scores, sums = torch.bmm(query, keys), torch.bmm(weight, values)
    found = []
    for count in _COUNTS[:-1]:
        part = slice(rows - count, rows)
        same = torch.equal(torch.bmm(query[:, part], keys), scores[:, part])
        if not (same and torch.equal(torch.bmm(weight[:, part], values), sums[:, part])):
            found.append(count)
    return found


def _narrow(kv_heads: int, dim: int, step: int) -> tuple[int, ...]:
    """How many first columns of a tile give what the whole tile gives with the rest hidden.

    A library that adds up a long inner axis in blocks gives the same sums up to the first block.
    """
    maker = torch.Generator().manual_seed(2)
    pool = torch.randn(2, TILE + 16, kv_heads, dim, generator=maker)
    keys, values = pool[0, 7 : 7 + TILE].permute(1, 2, 0), pool[1, 7 : 7 + TILE].permute(1, 0, 2)
    good = set(_WIDTHS)
    for rows in sorted({max(4, step), 2 * max(4, step), 32}):
        query = torch.randn(kv_heads, rows, dim, generator=maker)
        scores = torch.bmm(query, keys)
        for width in _WIDTHS:
            weight = torch.rand(kv_heads, rows, TILE, generator=maker)
            weight[..., width - 13 :] = 0
            few = torch.bmm(weight[..., :width], values[:, :width])
            if not (
                torch.equal(torch.bmm(query, keys[..., :width]), scores[..., :width])
                and torch.equal(few, torch.bmm(weight, values))
            ):
                good.discard(width)
    return tuple(sorted(good))


def _softmax_ignores_hidden(kv_heads: int) -> bool:
    """Whether whole hidden tiles before or behind leave a row's softmax as it is."""
    maker = torch.Generator().manual_seed(1)
    row = torch.randn(kv_heads, 4, TILE, generator=maker) * 3
    row[..., TILE - 50 :] = MASKED
    alone = torch.softmax(row, dim=-1)
    for before in (0, 1, 2):
        for behind in (0, 1, 2, 5, 13):
            wide = torch.full((kv_heads, 4, (before + 1 + behind) * TILE), MASKED)
            own = slice(before * TILE, (before + 1) * TILE)
            wide[..., own] = row
            got = torch.softmax(wide, dim=-1)[..., own]
            if not torch.equal(got, alone):
                return False
    return True
