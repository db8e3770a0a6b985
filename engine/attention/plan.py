"""Which tiles each query row of a batch reads: the plan of the CPU backend.

A tile whose slots are one run is read in place; only a tile that spans two runs is gathered. Single
rows (decode) of many sequences make a block, and a tile that several of them share is read once;
the rows of a prefill are cut into blocks of their own.

A block goes one way (split.py or products.py), which follows from the positions of its rows: those
within the first tile take products, where one call of each kernel costs about as much as another.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from agentkv.engine.attention import flash
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.tiles import (
    LANES,
    TILE,
    Block,
    RowRule,
    Tile,
    join,
    mask_of,
    round_up,
)
from agentkv.engine.types import IntArray

MIN_ROWS = 32
MAX_ROWS = 128
SCORE_BYTES = 1 << 21
"""Rows of a prefill block are chosen so that its scores stay in cache."""

MAX_JOINED_ROWS = 512
PART_BYTES = 1 << 24
"""The same where tiles are joined: there so that what each tile gave stays within this."""

SHARING = 3
"""Sequences on one prefix from which tiles, read once for all, beat a fused call for each."""


class TilePlan:
    """Blocks and tiles of one batch; built when the first layer of a kind asks."""

    def __init__(
        self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray, rule: RowRule
    ) -> None:
        self._first = qo_indptr.tolist()
        self._begin = kv_indptr.tolist()
        self._slots = np.ascontiguousarray(kv_indices, dtype=np.int64)
        self._rule = rule
        self._blocks: dict[tuple[AttentionSpec, bool], list[Block]] = {}
        self._sequences: list[tuple[int, flash.Sequence]] | None = None
        # breaks[j] counts the places up to j where the next slot does not follow the last.
        jump = np.ones(len(kv_indices), dtype=np.int64)
        jump[1:] = np.diff(self._slots) != 1
        self._breaks = np.cumsum(jump)
        self.rows = self._first[-1]

    def blocks(self, spec: AttentionSpec, *, whole: bool = False) -> list[Block]:
        """The work on tiles; with `whole`, without the sequences that `whole()` lists."""
        key = (spec, whole)
        found = self._blocks.get(key)
        if found is None:
            skip = {seq for seq, _ in self._whole_sequences()} if whole else set()
            left = [seq for seq in range(len(self._first) - 1) if seq not in skip]
            found = [*self._single(left, spec), *self._prefill(left, spec)]
            self._blocks[key] = found
        return found

    def whole(self) -> list[flash.Sequence]:
        """The sequences that half precision gives to the fused kernel as a whole (flash.py)."""
        return [sequence for _, sequence in self._whole_sequences()]

    def _whole_sequences(self) -> list[tuple[int, flash.Sequence]]:
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

    def _single(self, seqs: list[int], spec: AttentionSpec) -> Iterator[Block]:
        """Sequences with one new row (decode), batched; a tile that several read is read once."""
        buckets: dict[tuple[bool, int], list[tuple[int, int, int]]] = {}
        window = spec.sliding_window
        for seq in seqs:
            if self._first[seq + 1] - self._first[seq] == 1:
                at = self._begin[seq + 1] - self._begin[seq] - 1
                low = 0 if window is None else max(0, at - window + 1) // TILE
                # Rows of one block are padded to its longest: lengths within a factor of two.
                key = (self._is_fused(at, spec), (at // TILE - low + 1).bit_length())
                buckets.setdefault(key, []).append((seq, at, low))
        for (fused, _), members in buckets.items():
            yield self._decode_block(members, spec, fused)

    def _is_fused(self, at: int, spec: AttentionSpec) -> bool:
        """Which way a row at this position of its sequence goes."""
        return at >= TILE and spec.softcap is None and self._rule.fused is not None

    def _decode_block(
        self, members: list[tuple[int, int, int]], spec: AttentionSpec, fused: bool
    ) -> Block:
        rule, window = self._rule.way(fused), spec.sliding_window
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
            paths.append(([(p[1], p[3]) for p in path], seq, at, low, path))
        paths.sort(key=lambda p: p[0])  # common paths become neighbours
        columns = max(len(p[4]) for p in paths)
        tiles: list[Tile] = []
        last: dict[int, tuple[int, Tile]] = {}
        for row, (_, _, at, low, path) in enumerate(paths):
            for local, name, slots, hidden, column in path:
                before = last.get(local)
                if (
                    before is not None
                    and before[0] == name
                    and before[1].hi == row
                    and before[1].lane == low % LANES
                    and not hidden
                    and before[1].mask is None
                ):
                    before[1].hi = row + 1
                    continue
                tile = Tile(
                    row,
                    row + 1,
                    local,
                    name,
                    None if slots is None else torch.from_numpy(slots),
                    mask_of(np.array([at]), column, window) if hidden else None,
                    at % TILE + 1 if column == at // TILE else TILE,
                    lane=low % LANES,
                )
                tiles.append(tile)
                last[local] = (name, tile)
        narrow = rule.narrow
        tiles = join(tiles, narrow) if fused else [t.narrowed(narrow) for t in tiles]
        rows = [self._first[p[1]] for p in paths]
        count = len(rows)
        where = (
            slice(rows[0], rows[0] + count)
            if rows == list(range(rows[0], rows[0] + count))
            else torch.tensor(rows)
        )
        ragged = any(len(p[4]) < columns for p in paths) or any(t.width < TILE for t in tiles)
        per = round_up(spec.group, rule.step)
        return Block(where, count, per, count * per, columns, ragged, fused, tiles)

    def _prefill(self, seqs: list[int], spec: AttentionSpec) -> Iterator[Block]:
        """Sequences with several new rows: blocks of rows, each over the tiles it can see."""
        for seq in seqs:
            first, end = self._first[seq], self._first[seq + 1]
            new = end - first
            if new == 1:
                continue
            length = self._begin[seq + 1] - self._begin[seq]
            offset = length - new
            # From this row on, the other way.
            turn = end
            if self._is_fused(length - 1, spec):
                turn = min(end, max(first, first + TILE - offset))
            sources: dict[int, tuple[int, torch.Tensor | None]] = {}
            for low, high in ((first, turn), (turn, end)):
                if low == high:
                    continue
                last = offset + high - 1 - first
                fused = self._is_fused(last, spec)
                size = _block_rows(spec, last // TILE + 1, fused)
                for row in range(low, high, size):
                    rows = slice(row, min(row + size, high))
                    at = np.arange(rows.start, rows.stop) - first + offset
                    yield self._prefill_block(seq, rows, at, spec, fused, sources)

    def _prefill_block(
        self,
        seq: int,
        rows: slice,
        at: npt.NDArray[np.int64],
        spec: AttentionSpec,
        fused: bool,
        sources: dict[int, tuple[int, torch.Tensor | None]],
    ) -> Block:
        window, group, step = spec.sliding_window, spec.group, self._rule.way(fused).step
        count = len(at)
        score_rows = round_up(count * group, step)
        lowest, highest = int(at[0]), int(at[-1])
        low = 0 if window is None else max(0, lowest - window + 1) // TILE
        tiles = []
        for column in range(low, highest // TILE + 1):
            if column not in sources:
                start, slots = self._tile(seq, column)
                sources[column] = (start, None if slots is None else torch.from_numpy(slots))
            start, gather = sources[column]
            lo, hi = 0, count
            if fused:  # the rows that see some of it, in whole steps
                lo = max(0, column * TILE - lowest) // step * step
                if window is not None:
                    last = (column + 1) * TILE + window - 2
                    hi = min(count, round_up(last + 1 - lowest, step))
            mask = None
            if (column + 1) * TILE - 1 > at[lo] or (
                window is not None and column * TILE <= at[hi - 1] - window
            ):
                mask = mask_of(np.repeat(at[lo:hi], group), column, window)
                if hi == count and score_rows > count * group:
                    mask = torch.cat((mask, mask.new_zeros(score_rows - count * group, TILE)))
            tiles.append(Tile(lo, hi, column - low, start, gather, mask, lane=low % LANES))
        if fused:
            tiles = join(tiles, ())
        columns = highest // TILE + 1 - low
        return Block(rows, count, group, score_rows, columns, False, fused, tiles)


def _block_rows(spec: AttentionSpec, columns: int, fused: bool) -> int:
    if fused:
        size = PART_BYTES // (4 * spec.num_heads * spec.head_dim * columns)
        return max(MIN_ROWS, min(MAX_JOINED_ROWS, size))
    size = SCORE_BYTES // (4 * spec.group * TILE * columns)
    return max(MIN_ROWS, min(MAX_ROWS, size))
