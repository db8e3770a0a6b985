"""The fixed tiles of K and V that query rows read, and the blocks of rows that read them.

Positions of a sequence are cut into tiles of `TILE` at absolute multiples of it:

    position   0 ........ 255 | 256 ...... 511 | 512 .. 700
    tile             0        |       1        |  2 (columns behind 700 are masked)

A tile is always read whole, so the shapes of its products never depend on how long a sequence is,
where its prefill was cut, or who else is in the batch. One exception: a decoding row reads fewer
columns of its last tile, where the probe found that this changes no bit (`RowRule.narrow`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

TILE = 256
"""Positions a tile. Smaller wastes less above the diagonal, larger needs fewer calls."""

LANES = 16
"""Numbers of the widest vector. A softmax over tiles has each in the lane of its place in the
sequence, so that its sum runs in the same order wherever a window begins."""

MASKED = -1e30
"""Added to a hidden score: finite, so that no row can become NaN; exp of it is exactly 0."""


@dataclass(slots=True)
class Tile:
    """Token rows `[lo, hi)` of a block read these slots as columns `[column, column + count)`,
    `TILE` scores each.

    `slots` is None when they are the run that begins at `start`. `mask` is float32
    `[1 or score rows, width]`, or `[count, 1, width]`, or None when every row sees every position.
    `seen`: so many first positions are seen by some row. `width`: those that are read.
    Column 0 is tile `lane` of its sequence, modulo `LANES`.
    """

    lo: int
    hi: int
    column: int
    start: int
    slots: torch.Tensor | None
    mask: torch.Tensor | None
    seen: int = TILE
    width: int = TILE
    count: int = 1
    lane: int = 0

    def narrowed(self, widths: Iterable[int]) -> Tile:
        """This one tile with the first of `widths` (ascending) that holds what is seen of it."""
        width = next((w for w in widths if w >= self.seen), TILE)
        slots = None if self.slots is None else self.slots[:width]
        mask = None if self.mask is None else self.mask[:, :width]
        return replace(self, slots=slots, mask=mask, width=width)

    def goes_on(self, last: Tile) -> bool:
        """Whether it can be read in one call with `last` (and the tiles that ended with it)."""
        if (self.lo, self.hi, self.column - 1) != (last.lo, last.hi, last.column):
            return False
        if any(m is not None and m.shape[0] > 1 for m in (self.mask, last.mask)):
            return False  # a mask of many rows costs more, repeated, than a call
        if (self.slots is None) != (last.slots is None):
            return False
        return self.slots is not None or self.start == last.start + TILE


@dataclass(slots=True)
class Block:
    """Query rows that are computed together: `count` token rows of `per` score rows each.

    `per` is the number of query heads for each KV head, or more where a product needs more rows
    to be exact; the surplus is padding. `score_rows >= count * per`. `ragged`: some row reads fewer
    than `columns` whole tiles. `fused`: the way they go (split.py or products.py).
    """

    rows: slice | torch.Tensor
    count: int
    per: int
    score_rows: int
    columns: int
    ragged: bool
    fused: bool
    tiles: list[Tile]
    work: Any = None
    """The backend's buffers for this block, made when the first layer runs."""

    def span(self, tile: Tile) -> tuple[int, int]:
        """The score rows of a tile: from, to. The last token row takes the padding along."""
        high = self.score_rows if tile.hi == self.count else tile.hi * self.per
        return tile.lo * self.per, high


@dataclass(frozen=True, slots=True)
class FusedRule:
    """What makes a row of torch's fused attention independent of its neighbours: row counts that
    are multiples of `step`. `narrow`: so many first columns of a tile (ascending) give the same
    result as all of it with the others hidden."""

    step: int = 4
    narrow: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RowRule:
    """The same of the plain products; with `fixed`, calls of exactly `step` rows each. `fused`: the
    fused kernel's rule, or None where that is not to be used."""

    step: int = 4
    fixed: bool = False
    narrow: tuple[int, ...] = ()
    fused: FusedRule | None = FusedRule()

    def way(self, fused: bool) -> RowRule | FusedRule:
        """The rule of one way."""
        if not fused:
            return self
        assert self.fused is not None
        return self.fused


def join(tiles: list[Tile], narrow: Iterable[int]) -> list[Tile]:
    """The same tiles, in one where they go on from each other; those left alone are narrowed."""
    groups: list[list[Tile]] = []
    for tile in tiles:
        if groups and tile.goes_on(groups[-1][-1]):
            groups[-1].append(tile)
        else:
            groups.append([tile])
    return [g[0].narrowed(narrow) if len(g) == 1 else _joined(g) for g in groups]


def _joined(tiles: list[Tile]) -> Tile:
    slots = [t.slots for t in tiles if t.slots is not None]
    mask = None
    if any(t.mask is not None for t in tiles):
        mask = torch.zeros(len(tiles), 1, TILE)
        for index, tile in enumerate(tiles):
            if tile.mask is not None:
                mask[index] = tile.mask
    return replace(
        tiles[0],
        slots=torch.cat(slots) if slots else None,
        mask=mask,
        seen=tiles[-1].seen,
        count=len(tiles),
    )


def mask_of(at: npt.NDArray[np.int64], column: int, window: int | None) -> torch.Tensor:
    """float32 `[len(at), TILE]`: 0 where position `at` sees the tile's position, else MASKED."""
    where = np.arange(column * TILE, (column + 1) * TILE)[None, :]
    hidden = where > at[:, None]
    if window is not None:
        hidden |= where <= at[:, None] - window
    return torch.from_numpy(np.where(hidden, np.float32(MASKED), np.float32(0)))


def round_up(value: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-value // step) * step
