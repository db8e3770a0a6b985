"""Buffers of one step, by name: grown on demand, shared by all layers, never given back."""

from __future__ import annotations

import math

import torch


class Scratch:
    """Not thread-safe. What is taken under a name is valid until that name is taken again."""

    def __init__(self) -> None:
        self.buffers: dict[str, torch.Tensor] = {}

    def take(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """A contiguous tensor with the numbers that the last user left, finite ones (0 at first)
        as long as users leave such."""
        need = math.prod(shape)
        flat = self.buffers.get(name)
        if flat is None or flat.numel() < need or flat.dtype != dtype:
            flat = self.buffers[name] = torch.zeros(need, dtype=dtype)
        return flat[:need].view(shape)
