"""One batch on the host, in pages: what backends for an accelerator make their plans from.

From it come the tables that go to the device, in one copy with whatever else a step needs there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.types import IntArray
from agentkv.kernels.tiles import Tiles


@dataclass(frozen=True, slots=True)
class Host:
    """The tables of some sequences on the host, in pages."""

    qo_indptr: IntArray
    indptr: IntArray
    pages: IntArray
    last: IntArray
    lens: IntArray

    @classmethod
    def of(cls, qo: IntArray, kv_indptr: IntArray, slots: IntArray, page: int) -> Host:
        """From `qo_indptr`, `kv_indptr` and one slot a token."""
        lens = np.diff(kv_indptr)
        count = -(-lens // page)
        indptr = np.zeros(len(lens) + 1, dtype=np.int32)
        np.cumsum(count, out=indptr[1:])
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], count)
        first = slots[np.repeat(kv_indptr[:-1], count) + within * page]
        last = (lens - (count - 1) * page).astype(np.int32)
        return cls(qo, indptr, (first // page).astype(np.int32), last, lens.astype(np.int32))

    def behind(self, pages: int, page: int) -> Host:
        """The same sequences without their first `pages` pages."""
        keep = np.arange(len(self.pages)) - np.repeat(self.indptr[:-1], np.diff(self.indptr))
        indptr = self.indptr - np.arange(len(self.indptr), dtype=np.int32) * np.int32(pages)
        lens = self.lens - np.int32(pages * page)
        return Host(self.qo_indptr, indptr, self.pages[keep >= pages], self.last, lens)

    def shared(self) -> int:
        """Pages that all sequences begin with, leaving each at least one of its own."""
        most = int(np.diff(self.indptr).min()) - 1
        if most <= 0 or len(self.lens) < 2:
            return 0
        rows = self.pages[self.indptr[:-1, None] + np.arange(most)]
        same = (rows == rows[0]).all(axis=0)
        return most if bool(same.all()) else int(same.argmin())

    @property
    def tables(self) -> list[IntArray]:
        """What the kernels read of it, as `paged` takes it."""
        return [self.qo_indptr, self.indptr, self.pages, self.last]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the list of work of the extend kernel depends on."""

    heads: int
    kv_heads: int
    head_dim: int
    q_dtype: torch.dtype
    kv_dtype: torch.dtype

    @classmethod
    def of(cls, spec: AttentionSpec, q_dtype: torch.dtype, kv_dtype: torch.dtype) -> Shape:
        return cls(spec.num_heads, spec.num_kv_heads, spec.head_dim, q_dtype, kv_dtype)


@dataclass(slots=True)
class Layout:
    """One batch on the host. `decoding`: its first so many rows are one each of a sequence, and `one`
    has those (behind the `shared` pages that they all begin with, where the cascade is taken); `new`
    has the others, and `tiles` their work by shape of layer, its table still on the host.
    """

    decoding: int
    rows: int
    longest: int
    one: Host | None
    shared: IntArray | None
    new: Host | None
    tiles: dict[Shape, Tiles] = field(default_factory=dict)

    @property
    def tables(self) -> list[IntArray]:
        """All of it that is needed on the device, int32, flat."""
        found = [] if self.one is None else list(self.one.tables)
        if self.shared is not None:
            found.append(self.shared)
        if self.new is not None:
            found += self.new.tables
        return found + [t.work.numpy().ravel() for t in self.tiles.values()]
