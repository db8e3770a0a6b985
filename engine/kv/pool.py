"""The memory that keys and values live in: one tensor a layer, addressed by slot."""

from __future__ import annotations

import numpy as np
import torch

from agentkv.engine.device import Zeros
from agentkv.kernels import fp8

SLOT_PAD = 512
"""Slots behind the last one that readers may run into (a tile view has a fixed length)."""

KV_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "fp8": fp8.FP8,
    "fp8_e4m3": fp8.FP8,
}
"""Number formats of K and V, by the names that settings give them."""

Index = slice | torch.Tensor
"""Slots: one run of them, or int64 indices."""


def dtype_name(dtype: torch.dtype) -> str:
    """As reports, namespaces and files say it."""
    return "fp8_e4m3" if dtype == fp8.FP8 else str(dtype).removeprefix("torch.")


def narrower(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether numbers of `other` can lose something when they are kept as `dtype`."""
    return dtype.itemsize < other.itemsize


class KVPool:
    """K and V of `slots` tokens in each of `layers` layers.

    Slot s of a layer is `layer(i)[:, s]`: K in `[0, s]`, V in `[1, s]`, each `[kv_heads,
    head_dim]`. Nothing here knows which token a slot holds; pages and tree do.

    Every slot is finite at all times: the pool starts as zeros and `put` is given finite values,
    which it narrows with saturation. Readers count on it, since a hidden position is weighted with
    an exact 0, and 0 x inf would be NaN.

    dtype: torch.float32, torch.bfloat16, torch.float16 or torch.float8_e4m3fn. The last one needs
    `scales`, float32 `[layers, 2, kv_heads]`. A pool of another dtype has them when rows of FP8 come
    into it: all pools of one engine share one set.
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
        scales: torch.Tensor | None = None,
        zeros: Zeros | None = None,
    ) -> None:
        """`zeros`: where its memory comes from, when that is not the usual place on `device`."""
        if min(layers, slots, kv_heads, head_dim) < 1:
            raise ValueError("layers, slots, kv_heads and head_dim must all be at least 1")
        if scales is None and dtype == fp8.FP8:
            raise ValueError("an FP8 pool needs scales")
        if scales is not None and tuple(scales.shape) != (layers, 2, kv_heads):
            raise ValueError(
                f"scales must be [{layers}, 2, {kv_heads}], and are {list(scales.shape)}"
            )
        self.layers = layers
        self.slots = slots
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.dtype = dtype
        self.device = torch.device(device)
        self.scales = None if scales is None else scales.to(self.device, torch.float32)
        shape = (2, slots + SLOT_PAD, kv_heads, head_dim)
        # One tensor a layer, not one for all: a step writes to one layer at a time, and a
        # compiler or a copy-on-write device then touches that layer only.
        self._layers = [
            _zeros(shape, dtype, self.device) if zeros is None else zeros(shape, dtype)
            for _ in range(layers)
        ]

    def layer(self, index: int) -> torch.Tensor:
        """`[2, slots + SLOT_PAD, kv_heads, head_dim]`. FP8: codes, to be multiplied by
        `scales_of(index)`."""
        return self._layers[index]

    def scales_of(self, index: int) -> torch.Tensor | None:
        """What turns a layer's codes into numbers, float32 `[2, kv_heads]`; None but for FP8."""
        return self.scales[index] if self.scales is not None and self.dtype == fp8.FP8 else None

    def take(self, index: int, where: Index) -> torch.Tensor:
        """K and V of these slots in this pool's dtype, `[2, n, kv_heads, head_dim]`; a view where
        the slots are one run."""
        layer = _bytes(self._layers[index])
        rows = layer[:, where] if isinstance(where, slice) else layer.index_select(1, where)
        return rows.view(self.dtype)

    def put(self, index: int, where: Index, rows: torch.Tensor) -> None:
        """Write K and V `[2, n, kv_heads, head_dim]`: finite numbers of any float dtype, or codes
        of these very scales. What does not fit the pool's dtype saturates."""
        if rows.dtype != self.dtype:
            rows = self._converted(index, rows)
        layer, rows = _bytes(self._layers[index]), _bytes(rows)
        if isinstance(where, slice):
            layer[:, where].copy_(rows)
        else:
            layer.index_copy_(1, where, rows)

    def _converted(self, index: int, rows: torch.Tensor) -> torch.Tensor:
        if rows.dtype == fp8.FP8:
            if self.scales is None:
                raise ValueError("FP8 rows come into a pool that does not know their scales")
            rows = fp8.decode(rows, self.scales[index])
        if self.dtype == fp8.FP8:
            assert self.scales is not None
            return fp8.encode(rows, self.scales[index])
        if self.dtype != torch.float32:
            most = torch.finfo(self.dtype).max
            rows = rows.clamp(-most, most)
        return rows.to(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes reserved, padding included (on CPU they are backed by memory once touched)."""
        return sum(t.numel() * t.element_size() for t in self._layers)

    @property
    def token_bytes(self) -> int:
        """Bytes one token takes in all layers."""
        return self.bytes_per_token(self.layers, self.kv_heads, self.head_dim, self.dtype)

    @staticmethod
    def bytes_per_token(layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes one token takes in all layers of a pool of this shape."""
        return layers * 2 * kv_heads * head_dim * dtype.itemsize


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """FP8 as bytes, since indexing is not there for it everywhere; anything else as it is."""
    return tensor.view(torch.uint8) if tensor.dtype == fp8.FP8 else tensor


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are lazily backed pages; torch.zeros would write (and so commit) all of them.
    raw = np.zeros(shape, dtype={4: np.float32, 2: np.uint16, 1: np.uint8}[dtype.itemsize])
    return torch.from_numpy(raw).view(dtype)
