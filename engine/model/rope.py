"""Rotations by position, as complex numbers: one multiplication turns q and k together."""

from __future__ import annotations

import math

import torch

from agentkv.engine.model.config import Rope

_CHUNK = 2048
_SERIAL = 32768  # elements below which torch runs an elementwise operation on one thread


def frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """float32 `[head_dim / 2]`, radians a position.

    llama3 scaling: long wavelengths are stretched by `factor`, short ones kept, and those between
    interpolated (Llama 3.1 model card and reference code).
    """
    steps = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    base = 1.0 / (rope.theta**steps)
    if rope.kind == "linear":
        return base / rope.factor
    if rope.kind != "llama3":
        return base
    length = rope.original_max_position
    wave = 2 * math.pi / base
    stretched = torch.where(wave > length / rope.low_freq_factor, base / rope.factor, base)
    part = (length / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    between = (wave <= length / rope.low_freq_factor) & (wave >= length / rope.high_freq_factor)
    return torch.where(between, (1 - part) * base / rope.factor + part * base, stretched)


class RopeTable:
    """cos + i sin for each position and frequency, grown in chunks of a fixed shape.

    (Fixed, so that a position's bits do not depend on how far the table had grown.)
    """

    def __init__(self, rope: Rope, head_dim: int, *, device: torch.device) -> None:
        self._freq = frequencies(rope, head_dim).to(device)
        self._table = torch.empty(0, head_dim // 2, dtype=torch.complex64, device=device)

    def at(self, positions: torch.Tensor) -> torch.Tensor:
        """complex64 `[rows, 1, head_dim / 2]` for int64 `[rows]` positions."""
        self._grow(int(positions.max()) + 1)
        return self._table.index_select(0, positions)[:, None, :]

    def whole(self, count: int) -> torch.Tensor:
        """At least the first `count` positions as float32 `[n, head_dim / 2, 2]`: cosine, sine."""
        self._grow(count)
        return torch.view_as_real(self._table)

    def _grow(self, need: int) -> None:
        while self._table.shape[0] < need:
            first = self._table.shape[0]
            where = torch.arange(first, first + _CHUNK, device=self._freq.device).float()
            angle = where[:, None] * self._freq[None, :]
            self._table = torch.cat((self._table, torch.complex(angle.cos(), angle.sin())))

    @staticmethod
    def rotate(x: torch.Tensor, turn: torch.Tensor) -> None:
        """Turn `x [rows, heads, head_dim]` in place; pairs are adjacent (kernels/rope.py)."""
        wide = torch.view_as_complex(
            (x if x.dtype == torch.float32 else x.float()).unflatten(-1, (-1, 2))
        )
        # Rows are taken in lots too small for torch to split among threads: a split could fall
        # inside a head, and the kernel rounds the leftovers of a piece in its own way.
        step = max(1, (_SERIAL - 1) // (wide.shape[1] * wide.shape[2]))
        for low in range(0, wide.shape[0], step):
            wide[low : low + step].mul_(turn[low : low + step])
        if x.dtype != torch.float32:
            x.copy_(torch.view_as_real(wide).flatten(-2))
