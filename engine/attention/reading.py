"""Tiles of a pool as float32: in place where they are a run of it, gathered or widened otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from agentkv.engine.attention.scratch import Scratch
from agentkv.engine.attention.tiles import TILE, Tile
from agentkv.kernels import fp8

COPIED = 4
"""At most so many tiles are gathered or widened at a time: few calls, and they stay in cache."""


@dataclass(slots=True)
class _Copy:
    """Where one side goes: gathered `flat`, widened by way of `bits` to `wide`, seen as `result`."""

    flat: torch.Tensor | None
    bits: torch.Tensor | None
    wide: torch.Tensor | None
    result: torch.Tensor


class Source:
    """`count` columns of a tile, from its `first` on, in the layers of a pool.

    Made once a step from one layer, whose strides the others share. With `one` (of one column), what
    is read has no axis for the count.
    """

    def __init__(
        self,
        tile: Tile,
        first: int,
        count: int,
        kv: torch.Tensor,
        scratch: Scratch,
        *,
        one: bool = False,
    ) -> None:
        side, slot, head, number = kv.stride()
        heads, dim = kv.shape[2:]
        self.first, self.count = first, count
        self._codes = kv.dtype == fp8.FP8
        begin = (tile.start + first * TILE) * slot
        self._begin = (begin, begin + side)
        self._slots = None
        if tile.slots is not None:
            self._slots = tile.slots[first * TILE :][: count * tile.width]
        self._copies: list[_Copy] = []
        self._shape: tuple[int, ...]
        self._stride: tuple[int, ...]
        if self._slots is None and kv.dtype == torch.float32:
            self._shape = (count, heads, tile.width, dim)
            self._stride = (TILE * slot, head, slot, number)
            if one:
                self._shape, self._stride = self._shape[1:], self._stride[1:]
            return
        # Numbers that lie together are copied together: heads behind slots.
        self._shape = (count, tile.width, heads, dim)
        self._stride = (TILE * slot, slot, head, number)
        if one:
            self._shape, self._stride = self._shape[1:], self._stride[1:]
        for name in ("K", "V"):
            dtype = torch.int8 if self._codes else kv.dtype
            flat = bits = wide = None
            if self._slots is not None:
                flat = scratch.take(f"gathered {name}", (len(self._slots), heads, dim), dtype)
            if dtype != torch.float32:
                wide = scratch.take(f"widened {name}", self._shape)
            if self._codes:
                bits = scratch.take("bits", self._shape, torch.int16)
            last = wide if wide is not None else flat
            assert last is not None
            self._copies.append(_Copy(flat, bits, wide, last.view(self._shape).transpose(-3, -2)))

    def read(self, kv: torch.Tensor, side: int) -> torch.Tensor:
        """K (`side` 0) or V (1) of a layer `[2, slots, kv_heads, head_dim]`.

        float32 `[count, kv_heads, width, head_dim]`, valid until any source reads that side again;
        of FP8, the codes / `fp8.UNIT`.
        """
        # A view may run past the sequence into slots that hold other requests' tokens, or none
        # yet. They are masked, and finite (see KVPool), so that 0 times them is 0.
        if not self._copies:
            begin = kv.storage_offset() + self._begin[side]
            return kv.as_strided(self._shape, self._stride, begin)
        copy = self._copies[side]
        if self._codes:
            kv = kv.view(torch.int8)
        if copy.flat is not None:
            assert self._slots is not None
            torch.index_select(kv[side], 0, self._slots, out=copy.flat)
            part = copy.flat.view(self._shape)
        else:
            begin = kv.storage_offset() + self._begin[side]
            part = kv.as_strided(self._shape, self._stride, begin)
        if copy.wide is not None:
            if self._codes:
                fp8.widen(part, copy.wide, copy.bits)
            else:
                copy.wide.copy_(part)
        return copy.result


def sources(tile: Tile, kv: torch.Tensor, scratch: Scratch) -> Iterator[Source]:
    """All columns of a tile: at once in place, a few at a time where they are copied."""
    in_place = tile.slots is None and kv.dtype == torch.float32
    step = tile.count if in_place else COPIED
    for first in range(0, tile.count, step):
        yield Source(tile, first, min(step, tile.count - first), kv, scratch)
