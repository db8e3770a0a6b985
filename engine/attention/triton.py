"""Paged attention by the Triton kernels: one plan a batch, one or two launches a layer.

    rows   0 ........ d-1 | d ................. rows-1 | padding
           decoding       | new tokens of prompts      |
           decode kernel  | extend kernel              |
           (or cascade)   |

Plans are made on the host from the batch's tables and copied once. Where the decoding sequences begin
with the same pages, and reading them once is worth a second pass, the cascade does so: sequences that
share a node of the radix tree share its slots, so the tables show it.

`deterministic`: every row goes through the extend kernel with pieces of a fixed length, so that its
result depends on its own sequence only, to the last bit. Without, the last row of a prompt may take
another kernel than it would have in a longer chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.types import IntArray
from agentkv.kernels.cascade_attention import cascade_attention, gain_bound
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.extend_attention import extend_attention, plan_extend
from agentkv.kernels.paged import Paged
from agentkv.kernels.tiles import Tiles

SPLIT = 2048
"""Keys of one piece in deterministic mode: long prefixes still spread over the device."""

LEAST_SHARED = 256
LEAST_GAIN = 1.3
"""A cascade has a second pass and a merge; it is taken for a shared prefix of so many tokens, when it
reads so many times fewer keys."""


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

    def to(self, device: torch.device, page: int) -> Paged:
        """On the device, in one copy."""
        parts = (self.qo_indptr, self.indptr, self.pages, self.last)
        flat = torch.from_numpy(np.concatenate(parts).astype(np.int32))
        if device.type == "cuda":
            flat = flat.pin_memory()
        moved = flat.to(device, non_blocking=True).split([len(p) for p in parts])
        return Paged(moved[0], moved[1], moved[2], moved[3], page)


@dataclass(slots=True)
class TritonPlan:
    """One batch. `decoding`: its first so many rows are one each of a sequence.

    `shared`: pages that all of those begin with; `paged` then has what is behind them. `tiles` by
    shape of layer, made when a layer of it is met.
    """

    decoding: int
    rows: int
    longest: int
    shared: torch.Tensor | None
    paged: Paged | None
    new: Paged | None
    new_host: Host | None
    tiles: dict[AttentionSpec, Tiles]


class TritonAttention:
    """`AttentionBackend` for CUDA tensors, or for CPU tensors where Triton is interpreted.

    Without either (`agentkv.kernels.device.runs_triton`) the kernels' torch references answer.
    """

    def __init__(
        self,
        page_size: int = 1,
        *,
        device: torch.device | str = "cpu",
        cascade: bool = True,
        deterministic: bool = False,
    ) -> None:
        self.page_size = page_size
        self.device = torch.device(device)
        self.cascade = cascade and not deterministic
        self.bit_exact = deterministic
        self.cascades = 0
        """Batches whose shared prefix was read once."""

    def plan(self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray) -> TritonPlan:
        counts = np.diff(qo_indptr)
        longer = np.flatnonzero(counts != 1)
        first = len(counts) if not len(longer) else int(longer[0])
        decoding = 0 if self.bit_exact else first
        page, seqs = self.page_size, len(counts)
        paged = shared = new = host = None
        longest = 0
        if decoding:
            one = Host.of(
                qo_indptr[: decoding + 1],
                kv_indptr[: decoding + 1],
                kv_indices[: kv_indptr[decoding]],
                page,
            )
            pages = one.shared() if self.cascade else 0
            own = float(one.lens.mean()) - pages * page
            if (
                pages * page >= LEAST_SHARED
                and gain_bound(pages * page, own, decoding) >= LEAST_GAIN
            ):
                shared = torch.from_numpy(one.pages[:pages].copy()).to(self.device)
                one = one.behind(pages, page)
                self.cascades += 1
            paged, longest = one.to(self.device, page), int(one.lens.max())
        if decoding < seqs:
            host = Host.of(
                qo_indptr[decoding:] - qo_indptr[decoding],
                kv_indptr[decoding:] - kv_indptr[decoding],
                kv_indices[kv_indptr[decoding] :],
                page,
            )
            new = host.to(self.device, page)
        rows = int(qo_indptr[-1])
        return TritonPlan(decoding, rows, longest, shared, paged, new, host, {})

    def run(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        plan: TritonPlan,
        spec: AttentionSpec,
        scales: torch.Tensor | None = None,
    ) -> torch.Tensor:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        out[plan.rows :] = 0
        window, softcap = spec.sliding_window, spec.softcap
        if plan.paged is not None:
            part, into = q[: plan.decoding], out[: plan.decoding]
            if plan.shared is not None:
                cascade_attention(
                    part, kv, plan.shared, plan.paged, scale=spec.scale,
                    shared_len=plan.shared.shape[0] * self.page_size, max_kv_len=plan.longest,
                    window=window, softcap=softcap, scales=scales, out=into,
                )  # fmt: skip
            else:
                decode_attention(
                    part, kv, plan.paged, scale=spec.scale, max_kv_len=plan.longest,
                    window=window, softcap=softcap, scales=scales, out=into,
                )  # fmt: skip
        if plan.new is not None:
            extend_attention(
                q[plan.decoding : plan.rows], kv, plan.new, scale=spec.scale,
                tiles=self._tiles(q, kv, plan, spec), window=window, softcap=softcap,
                scales=scales, out=out[plan.decoding : plan.rows],
            )  # fmt: skip
        return out.view(q.shape[0], -1)

    def _tiles(
        self, q: torch.Tensor, kv: torch.Tensor, plan: TritonPlan, spec: AttentionSpec
    ) -> Tiles:
        """The list of work, once for all layers of a shape."""
        found = plan.tiles.get(spec)
        if found is None:
            assert plan.new_host is not None
            found = plan.tiles[spec] = plan_extend(
                plan.new_host.qo_indptr,
                plan.new_host.lens,
                heads=spec.num_heads,
                kv_heads=spec.num_kv_heads,
                head_dim=spec.head_dim,
                q_dtype=q.dtype,
                kv_dtype=kv.dtype,
                device=q.device,
                split=SPLIT if self.bit_exact else 0,
            )
        return found
