"""Tiles: the list of work of an attention kernel over a ragged batch, made on the host once a batch.

One entry is (sequence, first row in the sequence, split): a program takes up to `block_rows` rows and
the positions `[split * split_len, (split + 1) * split_len)`. Entries with the most keys come first, so
that the last ones to run are short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_NONE = 1 << 30


@dataclass(frozen=True, slots=True)
class Tiles:
    """`work`: int32 `[n, 3]` on the device. `rows`: planned rows. `split`: keys a program reads, 0
    for all. `parts`: the most splits that a row has. `block_rows`: rows of a tile."""

    work: torch.Tensor
    rows: int
    split: int
    parts: int
    block_rows: int


def plan_tiles(
    qo_indptr: Any,
    kv_lens: Any,
    block_rows: int,
    *,
    device: str | torch.device,
    split: int = 0,
    causal: bool = True,
) -> Tiles:
    """Tiles of a batch. `qo_indptr [seqs + 1]`, `kv_lens [seqs]`: integers on the host."""
    if block_rows < 1 or split < 0:
        raise ValueError("block_rows must be at least 1, and split at least 0")
    indptr = np.asarray(qo_indptr, np.int64)
    seq, row, reach = _unsplit(indptr, np.asarray(kv_lens, np.int64), block_rows, causal)
    splits = np.maximum(1, -(-reach // (split or _NONE)))
    entry = np.repeat(np.arange(len(seq)), splits)
    part = np.arange(splits.sum()) - np.repeat(np.cumsum(splits) - splits, splits)
    keys = np.minimum(reach[entry] - part * split, split or _NONE)
    order = np.argsort(-keys, kind="stable")
    work = np.stack((seq[entry], row[entry], part), axis=1)[order].astype(np.int32)
    return Tiles(
        work=torch.from_numpy(work).to(device, non_blocking=True),
        rows=int(indptr[-1]) if len(indptr) else 0,
        split=split,
        parts=int(splits.max(initial=1)),
        block_rows=block_rows,
    )


def spread(qo_indptr: Any, kv_lens: Any, block_rows: int, *, kv_heads: int, programs: int) -> int:
    """A `split` that makes about `programs` programs of a batch that would have fewer: a few new
    tokens behind long prefixes. 0 where the tiles suffice. It depends on the batch, so results do in
    their last bits; where they must not, use a constant."""
    indptr = np.asarray(qo_indptr, np.int64)
    _, _, reach = _unsplit(indptr, np.asarray(kv_lens, np.int64), block_rows, True)
    if len(reach) * kv_heads >= programs:
        return 0
    keys = int(reach.sum()) * kv_heads // programs
    split = max(256, -(-keys // 128) * 128)
    return split if split < reach.max(initial=0) else 0


def _unsplit(
    indptr: np.ndarray, lens: np.ndarray, block_rows: int, causal: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequence, first row and keys of each tile."""
    new = np.diff(indptr)
    tiles = -(-new // block_rows)
    seq = np.repeat(np.arange(len(new)), tiles)
    row = (np.arange(tiles.sum()) - np.repeat(np.cumsum(tiles) - tiles, tiles)) * block_rows
    reach = lens[seq]
    if causal:
        reach = np.minimum(reach, lens[seq] - new[seq] + np.minimum(row + block_rows, new[seq]))
    return seq, row, reach
