"""Which fixed KV tile each query row reads: the plan of the CPU backend.

Positions of a sequence are cut into tiles of `TILE` at absolute multiples of it:

    position   0 ........ 255 | 256 ...... 511 | 512 .. 700
    tile             0        |       1        |  2 (columns behind 700 are masked)

A tile is always read whole, so the shapes of the two products never depend on how long a
sequence is, where its prefill was cut, or who else is in the batch. A tile whose slots are one
run is read in place; only a tile that spans two runs is gathered. One exception: a decoding row
reads fewer columns of its last tile, where the probe found that this changes no bit
(`RowRule.narrow`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agentkv.engine.attention import flash
from agentkv.engine.types import IntArray

TILE = 256
"""Positions a tile. Smaller wastes less above the diagonal, larger needs fewer calls."""

MASKED = -1e30
"""Added to a hidden score: finite, so that no row can become NaN; exp of it is exactly 0."""

MAX_ROWS = 128
MIN_ROWS = 32
SCORE_BYTES = 1 << 21
"""Rows of a prefill block are chosen so that its scores stay in cache."""

SHARING = 3
"""Sequences on one prefix from which tiles, read once for all, beat a fused call for each."""


@dataclass(slots=True)
class Tile:
    """Token rows `[lo, hi)` of a block read these `TILE` slots as score column `column`.

    `slots` is None when they are the run `[start, start + TILE)`. `mask` is float32
    `[1 or score rows, width]`, or None when every row sees every position. `width`: columns read.
    """

    lo: int
    hi: int
    column: int
    start: int
    slots: torch.Tensor | None
    mask: torch.Tensor | None
    width: int = TILE


@dataclass(slots=True)
class Block:
    """Query rows that share one softmax call: `count` token rows of `per` score rows each.

    `per` is the number of query heads for each KV head, or more where a product needs more rows
    to be exact; the surplus is padding. `score_rows >= count * per`. `ragged`: some row reads fewer
    than `columns` whole tiles, so that its other scores must be filled in.
    """

    rows: slice | torch.Tensor
    count: int
    per: int
    score_rows: int
    columns: int
    ragged: bool
    tiles: list[Tile]
    work: Any = None
    """The backend's buffers for this block, made when the first layer runs."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """What makes a product's row independent of its neighbours: row counts that are multiples of
    `step`; with `fixed`, calls of exactly `step` rows each. `narrow`: so many first columns of
    a tile (ascending) give the same result as all of it with the others hidden."""

    step: int = 4
    fixed: bool = False
    narrow: tuple[int, ...] = ()


class TilePlan:
    """Blocks and tiles of one batch; built when the first layer asks, by window and group."""

    def __init__(
        self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray, rule: RowRule
    ) -> None:
        self._first = qo_indptr.tolist()
        self._begin = kv_indptr.tolist()
        self._slots = np.ascontiguousarray(kv_indices, dtype=np.int64)
        self._rule = rule
        self._blocks: dict[tuple[int | None, int, bool], list[Block]] = {}
        self._sequences: list[tuple[int, flash.Sequence]] | None = None
        # breaks[j] counts the places up to j where the next slot does not follow the last.
        jump = np.ones(len(kv_indices), dtype=np.int64)
        jump[1:] = np.diff(self._slots) != 1
        self._breaks = np.cumsum(jump)
        self.rows = self._first[-1]

    def blocks(self, window: int | None, group: int, *, fused: bool = False) -> list[Block]:
        """The work on tiles; with `fused`, without the sequences that `fused()` lists."""
        key = (window, group, fused)
        found = self._blocks.get(key)
        if found is None:
            skip = {seq for seq, _ in self._fused_sequences()} if fused else set()
            left = [seq for seq in range(len(self._first) - 1) if seq not in skip]
            found = [*self._single(left, window, group), *self._prefill(left, window, group)]
            self._blocks[key] = found
        return found

    def fused(self) -> list[flash.Sequence]:
        """The sequences that half precision gives to the fused kernel."""
        return [sequence for _, sequence in self._fused_sequences()]

    def _fused_sequences(self) -> list[tuple[int, flash.Sequence]]:
        if self._sequences is None:
            first, begin = self._first, self._begin
            rows = [slice(a, b) for a, b in pairwise(first)]
            slots = [self._slots[a:b] for a, b in pairwise(begin)]
            # Single rows of sequences that start with the same whole tile, by its two ends.
            heads: dict[tuple[int, int], list[int]] = {}
            for seq, row in enumerate(rows):
                if row.stop - row.start == 1 and len(slots[seq]) > TILE:
                    ends = (int(slots[seq][0]), int(slots[seq][TILE - 1]))
                    heads.setdefault(ends, []).append(seq)
            shared = {seq for group in heads.values() if len(group) >= SHARING for seq in group}
            self._sequences = [
                (seq, flash.Sequence.of(row, slots[seq]))
                for seq, row in enumerate(rows)
                if seq not in shared
            ]
        return self._sequences

    def _tile(self, seq: int, column: int) -> tuple[int, npt.NDArray[np.int64] | None]:
        """First slot of a tile, and its slots when they are not one run."""
        low = self._begin[seq] + column * TILE
        high = min(low + TILE, self._begin[seq + 1])
        if self._breaks[high - 1] == self._breaks[low]:
            return int(self._slots[low]), None
        slots = np.zeros(TILE, dtype=np.int64)  # slot 0 stands in behind the end: finite, masked
        slots[: high - low] = self._slots[low:high]
        return -1, slots

    def _single(self, seqs: list[int], window: int | None, group: int) -> Iterator[Block]:
        """Sequences with one new row (decode), batched; a tile that several read is read once."""
        buckets: dict[int, list[tuple[int, int, int]]] = {}
        for seq in seqs:
            if self._first[seq + 1] - self._first[seq] == 1:
                at = self._begin[seq + 1] - self._begin[seq] - 1
                low = 0 if window is None else max(0, at - window + 1) // TILE
                # Rows of one block are padded to its longest: lengths within a factor of two.
                buckets.setdefault((at // TILE - low + 1).bit_length(), []).append((seq, at, low))
        per = _round_up(group, self._rule.step)
        for members in buckets.values():
            yield self._decode_block(members, window, per)

    def _decode_block(
        self, members: list[tuple[int, int, int]], window: int | None, per: int
    ) -> Block:
        known: dict[bytes, int] = {}
        paths = []
        for seq, at, low in members:
            path = []
            for column in range(low, at // TILE + 1):
                start, slots = self._tile(seq, column)
                # Slots that are no run get a negative name of their own; equal ones share it.
                name = start if slots is None else ~known.setdefault(slots.tobytes(), len(known))
                hidden = column == at // TILE or (
                    window is not None and column * TILE <= at - window
                )
                path.append((column - low, name, slots, hidden, column))
            paths.append(([(p[1], p[3]) for p in path], seq, at, path))
        paths.sort(key=lambda p: p[0])  # common paths become neighbours
        columns = max(len(p[3]) for p in paths)
        tiles: list[Tile] = []
        last: dict[int, tuple[int, Tile]] = {}
        for row, (_, _, at, path) in enumerate(paths):
            for local, name, slots, hidden, column in path:
                before = last.get(local)
                if (
                    before is not None
                    and before[0] == name
                    and before[1].hi == row
                    and not hidden
                    and before[1].mask is None
                ):
                    before[1].hi = row + 1
                    continue
                mask, width = None, TILE
                if hidden:
                    if column == at // TILE:
                        fits = (w for w in self._rule.narrow if w > at % TILE)
                        width = next(fits, TILE)
                    mask = _mask(np.array([at]), column, window)[:, :width]
                tile = Tile(
                    row,
                    row + 1,
                    local,
                    name,
                    None if slots is None else torch.from_numpy(slots[:width]),
                    mask,
                    width,
                )
                tiles.append(tile)
                last[local] = (name, tile)
        rows = [self._first[p[1]] for p in paths]
        count = len(rows)
        where = (
            slice(rows[0], rows[0] + count)
            if rows == list(range(rows[0], rows[0] + count))
            else torch.tensor(rows)
        )
        ragged = any(len(p[3]) < columns for p in paths) or any(t.width < TILE for t in tiles)
        return Block(where, count, per, count * per, columns, ragged, tiles)

    def _prefill(self, seqs: list[int], window: int | None, group: int) -> Iterator[Block]:
        """Sequences with several new rows: blocks of rows, each over the tiles it can see."""
        for seq in seqs:
            first, end = self._first[seq], self._first[seq + 1]
            new = end - first
            if new == 1:
                continue
            length = self._begin[seq + 1] - self._begin[seq]
            offset = length - new
            size = SCORE_BYTES // (4 * group * TILE * (length // TILE + 1))
            size = max(MIN_ROWS, min(MAX_ROWS, size))
            sources: dict[int, tuple[int, torch.Tensor | None]] = {}
            for row in range(0, new, size):
                count = min(size, new - row)
                at = np.arange(offset + row, offset + row + count)
                yield self._prefill_block(
                    seq, slice(first + row, first + row + count), at, window, group, sources
                )

    def _prefill_block(
        self,
        seq: int,
        rows: slice,
        at: npt.NDArray[np.int64],
        window: int | None,
        group: int,
        sources: dict[int, tuple[int, torch.Tensor | None]],
    ) -> Block:
        count = len(at)
        score_rows = _round_up(count * group, self._rule.step)
        lowest, highest = int(at[0]), int(at[-1])
        low = 0 if window is None else max(0, lowest - window + 1) // TILE
        tiles = []
        for column in range(low, highest // TILE + 1):
            if column not in sources:
                start, slots = self._tile(seq, column)
                sources[column] = (start, None if slots is None else torch.from_numpy(slots))
            start, gather = sources[column]
            mask = None
            if (column + 1) * TILE - 1 > lowest or (
                window is not None and column * TILE <= highest - window
            ):
                mask = _mask(np.repeat(at, group), column, window)
                if score_rows > mask.shape[0]:
                    mask = torch.cat((mask, mask.new_zeros(score_rows - mask.shape[0], TILE)))
            tiles.append(Tile(0, count, column - low, start, gather, mask))
        return Block(rows, count, group, score_rows, highest // TILE + 1 - low, False, tiles)


def _mask(at: npt.NDArray[np.int64], column: int, window: int | None) -> torch.Tensor:
    """float32 `[len(at), TILE]`: 0 where position `at` sees the tile's position, else MASKED."""
    where = np.arange(column * TILE, (column + 1) * TILE)[None, :]
    hidden = where > at[:, None]
    if window is not None:
        hidden |= where <= at[:, None] - window
    return torch.from_numpy(np.where(hidden, np.float32(MASKED), np.float32(0)))


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
