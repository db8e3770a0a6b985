"""Paged attention by the Triton kernels: one plan a batch, one or two launches a layer.

    rows   0 ........ d-1 | d ................. rows-1 | padding
           decoding       | new tokens of prompts      |
           decode kernel  | extend kernel              |
           (or cascade)   |

Plans are made on the host from the batch's tables (`layout`), and their arrays are copied to the device
at once, with whatever else a step needs there (`place`). Where the decoding sequences begin with
the same pages, and reading them once is worth a second pass, the cascade does so: sequences that share a
node of the radix tree share its slots, so the tables show it.

`deterministic`: every row goes through the extend kernel with pieces of a fixed length, so that its
result depends on its own sequence only, to the last bit. Without, the last row of a prompt may take
another kernel than it would have in a longer chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.layout import Host, Layout, Shape
from agentkv.engine.attention.packing import upload
from agentkv.engine.types import IntArray
from agentkv.kernels.cascade_attention import (
    CascadePlan,
    cascade_attention,
    gain_bound,
    plan_cascade,
)
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.device import INTERPRETED, arch_of
from agentkv.kernels.extend_attention import extend_attention, plan_extend
from agentkv.kernels.paged import Paged
from agentkv.kernels.tiles import Tiles
from agentkv.kernels.tuning import pick

SPLIT = 2048
"""Keys of one piece in deterministic mode: long prefixes still spread over the device."""

LEAST_SHARED = 256
LEAST_GAIN = 1.3
"""A cascade has a second pass and a merge; it is taken for a shared prefix of so many tokens, when it
reads so many times fewer keys."""

LAUNCH_BYTES = 256 << 20
"""Where decoding steps run as graphs, a cascade, which does not, must spare each layer at least so many
bytes: about what memory delivers while the host launches a layer's kernels one by one."""


def paged_of(parts: Sequence[torch.Tensor], page: int) -> Paged:
    """`Host.tables` on the device."""
    return Paged(parts[0], parts[1], parts[2], parts[3], page)


@dataclass(slots=True)
class TritonPlan:
    """One batch on the device; fields as in `Layout`. `longest`: at least every length of `paged`."""

    decoding: int
    rows: int
    longest: int
    shared: torch.Tensor | None
    paged: Paged | None
    new: Paged | None
    host: Layout | None = None
    tiles: dict[Shape, Tiles] = field(default_factory=dict)
    cascades: dict[Shape, CascadePlan] = field(default_factory=dict)


class TritonAttention:
    """`AttentionBackend` for CUDA tensors, or for CPU tensors where Triton is interpreted.

    Without either (`agentkv.kernels.device.runs_triton`) the kernels' torch references answer.
    `graph_bytes`: bytes of K/V of one token in one layer, where decoding steps run as graphs; it
    decides what a cascade must spare (see `LAUNCH_BYTES`). 0: they do not.
    """

    def __init__(
        self,
        page_size: int = 1,
        *,
        device: torch.device | str = "cpu",
        cascade: bool = True,
        deterministic: bool = False,
        graph_bytes: int = 0,
    ) -> None:
        self.page_size = page_size
        self.device = torch.device(device)
        self.cascade = cascade and not deterministic
        self.deterministic = deterministic
        # The references add up by the shape of what they are given.
        self.bit_exact = deterministic and (self.device.type != "cpu" or INTERPRETED)
        self.graph_bytes = graph_bytes
        self.cascades = 0
        """Batches whose shared prefix was read once."""

    def plan(self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray) -> TritonPlan:
        layout = self.layout(qo_indptr, kv_indptr, kv_indices)
        return self.place(layout, upload(layout.tables, self.device))

    def layout(
        self,
        qo_indptr: IntArray,
        kv_indptr: IntArray,
        kv_indices: IntArray,
        shapes: Sequence[Shape] = (),
    ) -> Layout:
        """The host's part of a plan. `shapes`: of the layers that it will serve; the work of others
        is listed when they are met."""
        counts = np.diff(qo_indptr)
        longer = np.flatnonzero(counts != 1)
        first = len(counts) if not len(longer) else int(longer[0])
        decoding = 0 if self.deterministic else first
        page = self.page_size
        found = Layout(decoding, int(qo_indptr[-1]), 0, None, None, None)
        if decoding:
            ends = slice(decoding + 1)
            one = Host.of(qo_indptr[ends], kv_indptr[ends], kv_indices[: kv_indptr[decoding]], page)
            pages = one.shared() if self.cascade else 0
            if self._pays(pages * page, float(one.lens.mean()) - pages * page, decoding):
                found.shared = one.pages[:pages].copy()
                one = one.behind(pages, page)
                self.cascades += 1
            found.one, found.longest = one, int(one.lens.max())
        if decoding < len(counts):
            found.new = Host.of(
                qo_indptr[decoding:] - qo_indptr[decoding],
                kv_indptr[decoding:] - kv_indptr[decoding],
                kv_indices[kv_indptr[decoding] :],
                page,
            )
            for shape in dict.fromkeys(shapes):
                found.tiles[shape] = self._work(found.new, shape)
        return found

    def place(self, layout: Layout, parts: Sequence[torch.Tensor]) -> TritonPlan:
        """The plan, from `layout.tables` on the device."""
        rest = list(parts)
        plan = TritonPlan(layout.decoding, layout.rows, layout.longest, None, None, None, layout)
        if layout.one is not None:
            plan.paged, rest = paged_of(rest, self.page_size), rest[4:]
        if layout.shared is not None:
            plan.shared = rest.pop(0)
        if layout.new is not None:
            plan.new, rest = paged_of(rest, self.page_size), rest[4:]
        for (shape, tiles), work in zip(layout.tiles.items(), rest, strict=True):
            plan.tiles[shape] = replace(tiles, work=work.view(-1, 3))
        return plan

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
                    plan=self._cascade(plan, Shape.of(spec, q.dtype, kv.dtype)), window=window, softcap=softcap, scales=scales, out=into,
                )  # fmt: skip
            else:
                decode_attention(
                    part, kv, plan.paged, scale=spec.scale, max_kv_len=plan.longest,
                    window=window, softcap=softcap, scales=scales, out=into,
                )  # fmt: skip
        if plan.new is not None:
            extend_attention(
                q[plan.decoding : plan.rows], kv, plan.new, scale=spec.scale,
                tiles=self._tiles(plan, Shape.of(spec, q.dtype, kv.dtype)), window=window,
                softcap=softcap, scales=scales, out=out[plan.decoding : plan.rows],
            )  # fmt: skip
        return out.view(q.shape[0], -1)

    def _pays(self, shared: int, own: float, sequences: int) -> bool:
        """Whether to read a prefix of so many tokens once."""
        if shared < LEAST_SHARED or gain_bound(shared, own, sequences) < LEAST_GAIN:
            return False
        spared = shared * (sequences - 1) * self.graph_bytes
        return not self.graph_bytes or spared >= LAUNCH_BYTES

    def _cascade(self, plan: TritonPlan, shape: Shape) -> CascadePlan:
        """The pass over the prefix, once for all layers of a shape."""
        found = plan.cascades.get(shape)
        if found is None:
            assert plan.shared is not None and plan.paged is not None
            found = plan.cascades[shape] = plan_cascade(
                plan.shared,
                plan.paged,
                shared_len=plan.shared.shape[0] * self.page_size,
                rows=plan.decoding,
                heads=shape.heads,
                kv_heads=shape.kv_heads,
                head_dim=shape.head_dim,
                q_dtype=shape.q_dtype,
                kv_dtype=shape.kv_dtype,
            )
        return found

    def _tiles(self, plan: TritonPlan, shape: Shape) -> Tiles:
        """The list of work, once for all layers of a shape."""
        found = plan.tiles.get(shape)
        if found is None:
            assert plan.host is not None and plan.host.new is not None
            made = self._work(plan.host.new, shape)
            found = plan.tiles[shape] = replace(made, work=made.work.to(self.device))
        return found

    def _work(self, new: Host, shape: Shape) -> Tiles:
        """The list of work, still on the host."""
        config = pick("extend", arch_of(self.device), shape.head_dim, shape.kv_dtype, shape.q_dtype)
        return plan_extend(
            new.qo_indptr,
            new.lens,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            q_dtype=shape.q_dtype,
            kv_dtype=shape.kv_dtype,
            device="cpu",
            split=SPLIT if self.deterministic else 0,
            config=config,
        )
