"""The memory that keys and values live in: one tensor a layer, addressed by slot."""

from __future__ import annotations

import numpy as np
import torch

SLOT_PAD = 512
"""Slots behind the last one that readers may run into (a tile view has a fixed length)."""


class KVPool:
    """K and V of `slots` tokens in each of `layers` layers.

    Slot s of a layer is `layer(i)[:, s]`: K in `[0, s]`, V in `[1, s]`, each `[kv_heads,
    head_dim]`. Nothing here knows which token a slot holds; pages and tree do.

    Every slot is finite at all times: the pool starts as zeros and attention writes finite
    values. Readers count on it, since a hidden position is weighted with an exact 0, and
    0 x inf would be NaN.

    dtype: torch.float32, torch.bfloat16 or torch.float16.
    """

    def __init__(
        self,
        *,
        layers: int,
        slots: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: str | torch.device = "cpu",
    ) -> None:
        if min(layers, slots, kv_heads, head_dim) < 1:
            raise ValueError("layers, slots, kv_heads and head_dim must all be at least 1")
        self.layers = layers
        self.slots = slots
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.dtype = dtype
        self.device = torch.device(device)
        shape = (2, slots + SLOT_PAD, kv_heads, head_dim)
        # One tensor a layer, not one for all: a step writes to one layer at a time, and a
        # compiler or a copy-on-write device then touches that layer only.
        self._layers = [_zeros(shape, dtype, self.device) for _ in range(layers)]

    def layer(self, index: int) -> torch.Tensor:
        """`[2, slots + SLOT_PAD, kv_heads, head_dim]`."""
        return self._layers[index]

    @property
    def nbytes(self) -> int:
        """Bytes reserved, padding included (on CPU they are backed by memory once touched)."""
        return sum(t.numel() * t.element_size() for t in self._layers)

    @staticmethod
    def bytes_per_token(layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes one token takes in all layers."""
        return layers * 2 * kv_heads * head_dim * dtype.itemsize


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are lazily backed pages; torch.zeros would write (and so commit) all of them.
    raw = np.zeros(shape, dtype={4: np.float32, 2: np.uint16}[dtype.itemsize])
    return torch.from_numpy(raw).view(dtype)
