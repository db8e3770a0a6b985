"""Batches for attention kernels: random queries over random pages of a random pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agentkv.engine.types import IntArray
from agentkv.kernels.paged import Paged

FP8_SCALE = 2.0**-6
"""Normal numbers divided by this stay within e4m3's 448."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, KV heads, and the size of each."""

    heads: int = 32
    kv_heads: int = 8
    dim: int = 128

    @property
    def scale(self) -> float:
        return float(self.dim**-0.5)


LLAMA_8B = Heads()


@dataclass(slots=True)
class Batch:
    """Sequences over one pool layer `kv [2, slots, kv_heads, dim]`.

    `new[i]` rows of `q [rows, heads, dim]` are the last of sequence i's `lens[i]` positions. `tables`
    are the host's copies of `paged`: qo_indptr, kv_indptr, pages, last page's length.
    """

    heads: Heads
    q: torch.Tensor
    kv: torch.Tensor
    scales: torch.Tensor | None
    paged: Paged
    lens: IntArray
    new: IntArray
    tables: tuple[IntArray, IntArray, IntArray, IntArray]

    @property
    def page(self) -> int:
        return self.paged.page_size

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V that the batch's sequences hold, each page once."""
        return self.tokens_bytes(int(self.lens.sum()))

    def tokens_bytes(self, tokens: int) -> int:
        """Bytes of K and V of so many tokens."""
        return 2 * tokens * self.heads.kv_heads * self.heads.dim * self.kv.element_size()

    @property
    def flops(self) -> int:
        """Of both products, with what causality hides left out."""
        seen = sum(
            int(n) * (int(length) - int(n)) + int(n) * (int(n) + 1) // 2
            for n, length in zip(self.new, self.lens, strict=True)
        )
        return 4 * self.heads.heads * self.heads.dim * seen

    def rule(self) -> dict[str, Any]:
        """What every attention kernel is given besides."""
        return {"scale": self.heads.scale, "scales": self.scales}

    def slots(self) -> IntArray:
        """The slot of each position of each sequence, one after the other."""
        _, indptr, pages, _ = self.tables
        every = (pages[:, None] * self.page + np.arange(self.page, dtype=np.int32)).ravel()
        ends = indptr * self.page
        parts = [every[a : a + n] for a, n in zip(ends[:-1], self.lens, strict=True)]
        return np.concatenate(parts).astype(np.int32)

    def part(self, sequences: Sequence[int]) -> Batch:
        """Some of the sequences, over the same pool."""
        qo, indptr, pages, last = self.tables
        rows = np.concatenate([np.arange(qo[i], qo[i + 1]) for i in sequences])
        tables = (
            _indptr(self.new[list(sequences)]),
            _indptr(np.diff(indptr)[list(sequences)]),
            np.concatenate([pages[indptr[i] : indptr[i + 1]] for i in sequences]),
            last[list(sequences)],
        )
        return Batch(
            self.heads, self.q[torch.from_numpy(rows).to(self.q.device)], self.kv, self.scales,
            to_device(tables, self.page, self.q.device), self.lens[list(sequences)],
            self.new[list(sequences)], tables,
        )  # fmt: skip

    def end(self, i: int, rows: int, before: int = 0) -> Batch:
        """The last `rows` queries of sequence i, or those in front of its last `before` positions."""
        qo, indptr, pages, _ = self.tables
        length = int(self.lens[i]) - before
        count = -(-length // self.page)
        tables = (
            np.array([0, rows], np.int32),
            np.array([0, count], np.int32),
            pages[indptr[i] : indptr[i] + count],
            np.array([length - (count - 1) * self.page], np.int32),
        )
        stop = int(qo[i + 1]) - before
        return Batch(
            self.heads, self.q[stop - rows : stop], self.kv, self.scales,
            to_device(tables, self.page, self.q.device), np.array([length], np.int32),
            np.array([rows], np.int32), tables,
        )  # fmt: skip


def make(
    lens: Sequence[int],
    new: Sequence[int],
    *,
    page: int,
    kv_dtype: torch.dtype,
    device: torch.device | str,
    q_dtype: torch.dtype = torch.bfloat16,
    heads: Heads = LLAMA_8B,
    seed: int = 0,
) -> Batch:
    """`lens[i]` tokens of sequence i are in the pool, the last `new[i]` of them with a query."""
    device = torch.device(device)
    counts = [-(-n // page) for n in lens]
    pages = np.random.default_rng(seed).permutation(sum(counts)).astype(np.int32)
    last = [n - (c - 1) * page for n, c in zip(lens, counts, strict=True)]
    tables = (
        _indptr(new), _indptr(counts), pages, np.asarray(last, dtype=np.int32),
    )  # fmt: skip
    kv, scales = pool(max(1, sum(counts)) * page, heads, kv_dtype, device, seed=seed)
    maker = torch.Generator(device).manual_seed(seed + 1)
    q = torch.empty((sum(new), heads.heads, heads.dim), dtype=q_dtype, device=device)
    q.normal_(generator=maker)
    return Batch(
        heads, q, kv, scales, to_device(tables, page, device),
        np.asarray(lens, np.int32), np.asarray(new, np.int32), tables,
    )  # fmt: skip


def pool(
    slots: int, heads: Heads, dtype: torch.dtype, device: torch.device, *, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One random pool layer and, for FP8, the scales of its heads."""
    maker = torch.Generator(device).manual_seed(seed)
    shape = (2, slots, heads.kv_heads, heads.dim)
    if dtype != torch.float8_e4m3fn:
        return torch.empty(shape, dtype=dtype, device=device).normal_(generator=maker), None
    kv = torch.empty(shape, dtype=dtype, device=device)
    step = max(1, (1 << 28) // (heads.kv_heads * heads.dim))
    for side in range(2):
        for low in range(0, slots, step):  # in pieces: the wider numbers take four times the room
            rows = kv[side, low : low + step]
            wide = torch.empty(rows.shape, dtype=torch.float32, device=device)
            wide.normal_(generator=maker).div_(FP8_SCALE).clamp_(-448, 448)
            rows.view(torch.uint8).copy_(wide.to(dtype).view(torch.uint8))
    return kv, torch.full((2, heads.kv_heads), FP8_SCALE, device=device)


def to_device(tables: Sequence[IntArray], page: int, device: torch.device) -> Paged:
    """Host tables as the kernels read them."""
    moved = [torch.from_numpy(np.ascontiguousarray(t, np.int32)).to(device) for t in tables]
    return Paged(moved[0], moved[1], moved[2], moved[3], page)


def _indptr(counts: Sequence[int] | IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
