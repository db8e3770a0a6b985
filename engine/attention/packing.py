"""Many small tables in one array, so that one copy brings them to the device.

Each begins at a multiple of 16 bytes: a kernel is compiled anew for a pointer that does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agentkv.engine.types import IntArray

_STEP = 4  # int32 numbers in 16 bytes


def places(lengths: Sequence[int]) -> tuple[list[int], int]:
    """Where each of these many numbers begins, and how many there are in all, gaps included."""
    starts, end = [], 0
    for length in lengths:
        starts.append(end)
        end += -(-length // _STEP) * _STEP
    return starts, end


def pack(tables: Sequence[IntArray], out: IntArray) -> int:
    """Write int32 `tables` into `out`, and return how much of it is used. Gaps are left as they are."""
    starts, end = places([len(t) for t in tables])
    for table, start in zip(tables, starts, strict=True):
        out[start : start + len(table)] = table
    return end


def unpack(flat: torch.Tensor, lengths: Sequence[int]) -> list[torch.Tensor]:
    """The tables of a packed int32 tensor, as views."""
    starts, _ = places(lengths)
    return [flat[start : start + n] for start, n in zip(starts, lengths, strict=True)]


def upload(tables: Sequence[IntArray], device: torch.device) -> list[torch.Tensor]:
    """Tables on `device`, in one copy."""
    lengths = [len(t) for t in tables]
    flat = np.zeros(places(lengths)[1], dtype=np.int32)
    pack(tables, flat)
    return unpack(torch.from_numpy(flat).to(device), lengths)
