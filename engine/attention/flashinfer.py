"""Paged attention by FlashInfer, where that is installed: a thin backend of the same protocol.

One wrapper for each shape of layer and each half of the batch (decoding rows, rows of prompts), all on
one workspace. A wrapper is planned when the first layer of its shape runs, and serves the others of
the step. FlashInfer reads the pool where it is: K and V as `[pages, page, kv_heads, head_dim]`.

FlashInfer knows one scale for all heads of an FP8 pool, and ours are one a KV head: K's go into the
queries and V's into the outputs. Calibrated scales are powers of two, so that this is exact.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.layout import Host, Layout
from agentkv.engine.attention.packing import upload
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.types import IntArray

INSTALL = "pip install flashinfer-python"
WORKSPACE = 256 << 20
"""Bytes for partial results; FlashInfer's own examples take half of it."""

HEAD_DIMS = (64, 128, 256)
TENSOR_CORES = 3
"""Query heads a KV head from which its tensor-core kernel decodes."""

Shape = tuple[AttentionSpec, torch.dtype, torch.dtype]


def library() -> Any:
    """The module `flashinfer`. Raises `InvalidRequest` with the command that installs it."""
    try:
        return importlib.import_module("flashinfer")
    except ImportError as error:
        raise InvalidRequest(
            f"attention='flashinfer' needs FlashInfer, which cannot be imported ({error}). "
            f"Install it: {INSTALL}, or use attention='triton'.",
            param="attention",
        ) from error


@dataclass(slots=True)
class FlashInferPlan:
    """One batch: rows `[0, decoding)` are one each of a sequence, `[decoding, rows)` new tokens.

    `one` and `new` have their tables on the host, which FlashInfer's own plans read, and the pages
    on the device.
    """

    decoding: int
    rows: int
    one: tuple[Host, torch.Tensor] | None
    new: tuple[Host, torch.Tensor] | None


class FlashInferAttention:
    """`AttentionBackend` for CUDA tensors of float16 or bfloat16 and pools of those or FP8."""

    bit_exact = False  # its splits follow the batch

    def __init__(self, page_size: int = 1, *, device: torch.device | str = "cuda") -> None:
        """Raises `InvalidRequest` where FlashInfer is not installed."""
        self.page_size = page_size
        self.device = torch.device(device)
        self._library = library()
        self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=self.device)
        self._wrappers: dict[tuple[str, Shape], tuple[Any, FlashInferPlan]] = {}

    def plan(
        self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray
    ) -> FlashInferPlan:
        layout = self.layout(qo_indptr, kv_indptr, kv_indices)
        return self.place(layout, upload(layout.tables, self.device))

    def layout(self, qo_indptr: IntArray, kv_indptr: IntArray, kv_indices: IntArray) -> Layout:
        """The host's part of a plan. FlashInfer's own is made when the first layer of a shape runs."""
        counts = np.diff(qo_indptr)
        longer = np.flatnonzero(counts != 1)
        decoding = len(counts) if not len(longer) else int(longer[0])
        found = Layout(decoding, int(qo_indptr[-1]), 0, None, None, None)
        if decoding:
            ends = slice(decoding + 1)
            slots = kv_indices[: kv_indptr[decoding]]
            found.one = Host.of(qo_indptr[ends], kv_indptr[ends], slots, self.page_size)
            found.longest = int(found.one.lens.max())
        if decoding < len(counts):
            found.new = Host.of(
                qo_indptr[decoding:] - qo_indptr[decoding],
                kv_indptr[decoding:] - kv_indptr[decoding],
                kv_indices[kv_indptr[decoding] :],
                self.page_size,
            )
        return found

    def place(self, layout: Layout, parts: Sequence[torch.Tensor]) -> FlashInferPlan:
        """The plan, from `layout.tables` on the device."""
        # Each part's tables are qo_indptr, indptr, pages, last.
        there = iter(parts[2::4])
        one = None if layout.one is None else (layout.one, next(there))
        new = None if layout.new is None else (layout.new, next(there))
        return FlashInferPlan(layout.decoding, layout.rows, one, new)

    def run(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        plan: FlashInferPlan,
        spec: AttentionSpec,
        scales: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Raises `InvalidRequest` for dtypes and head sizes that FlashInfer has no kernel for."""
        _check(q, spec)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        out[plan.rows :] = 0
        pages = kv.shape[1] // self.page_size
        pool = tuple(
            side[: pages * self.page_size].unflatten(0, (pages, self.page_size)) for side in kv
        )
        if scales is not None:
            keys, values = (
                s.repeat_interleave(spec.group).to(q.dtype)[None, :, None] for s in scales
            )
            q = q * keys
        shape = (spec, q.dtype, kv.dtype)
        if plan.one is not None:
            rows = slice(0, plan.decoding)
            self._decode(plan, *plan.one, shape).run(q[rows], pool, out=out[rows])
        if plan.new is not None:
            rows = slice(plan.decoding, plan.rows)
            self._extend(plan, *plan.new, shape).run(q[rows], pool, out=out[rows])
        if scales is not None:
            out *= values
        return out.flatten(1)

    def _decode(self, plan: FlashInferPlan, host: Host, pages: torch.Tensor, shape: Shape) -> Any:
        spec = shape[0]
        key = ("decode", shape)
        if self._holds(key, plan):
            return self._wrappers[key][0]
        wrapper = self._wrapper(
            key, "BatchDecodeWithPagedKVCacheWrapper", use_tensor_cores=spec.group >= TENSOR_CORES
        )
        wrapper.plan(
            _tensor(host.indptr), pages, _tensor(host.last),
            spec.num_heads, spec.num_kv_heads, spec.head_dim, self.page_size, **_rules(shape),
        )  # fmt: skip
        self._wrappers[key] = (wrapper, plan)
        return wrapper

    def _extend(self, plan: FlashInferPlan, host: Host, pages: torch.Tensor, shape: Shape) -> Any:
        spec = shape[0]
        key = ("extend", shape)
        if self._holds(key, plan):
            return self._wrappers[key][0]
        wrapper = self._wrapper(key, "BatchPrefillWithPagedKVCacheWrapper")
        wrapper.plan(
            _tensor(host.qo_indptr), _tensor(host.indptr), pages,
            _tensor(host.last), spec.num_heads, spec.num_kv_heads, spec.head_dim, self.page_size,
            causal=True, **_rules(shape),
        )  # fmt: skip
        self._wrappers[key] = (wrapper, plan)
        return wrapper

    def _holds(self, key: tuple[str, Shape], plan: FlashInferPlan) -> bool:
        """Whether the wrapper's present plan is of this very batch."""
        return key in self._wrappers and self._wrappers[key][1] is plan

    def _wrapper(self, key: tuple[str, Shape], kind: str, **options: Any) -> Any:
        if key in self._wrappers:
            return self._wrappers[key][0]
        return getattr(self._library, kind)(self._workspace, "NHD", **options)


def _rules(shape: Shape) -> dict[str, Any]:
    spec, q_dtype, kv_dtype = shape
    return {
        "sm_scale": spec.scale,
        # Its window counts the positions left of the query, ours the query as well.
        "window_left": -1 if spec.sliding_window is None else spec.sliding_window - 1,
        "logits_soft_cap": spec.softcap or 0.0,
        "q_data_type": q_dtype,
        "kv_data_type": kv_dtype,
    }


def _check(q: torch.Tensor, spec: AttentionSpec) -> None:
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise InvalidRequest(
            f"FlashInfer computes in float16 or bfloat16, not {q.dtype}. "
            "Use dtype='bfloat16', or attention='triton'.",
            param="attention",
        )
    if spec.head_dim not in HEAD_DIMS:
        raise InvalidRequest(
            f"FlashInfer has kernels for heads of {', '.join(map(str, HEAD_DIMS))}, and this model's "
            f"are of {spec.head_dim}. Use attention='triton'.",
            param="attention",
        )


def _tensor(values: IntArray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int32))
