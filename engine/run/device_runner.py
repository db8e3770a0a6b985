"""DeviceRunner: one step on an accelerator.

    tables --one copy--> device --kernels, or a graph of them--> logits (stay there)

Everything is queued on the compute stream and nothing waits but who reads the logits. So a step can be
queued while the one before it runs, and start from tokens that one has not chosen yet (`launch`). K and V
are written by a kernel that narrows and saturates them. A broken number (overflow in one request) stays in
that request's slots: the kernels never read behind a sequence's end, hidden or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from agentkv.engine.attention.base import AttentionBackend, Staged
from agentkv.engine.attention.layout import Shape
from agentkv.engine.attention.triton import TritonAttention
from agentkv.engine.device import Device
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.fused import FIXED_ROWS
from agentkv.engine.model.llama import Llama
from agentkv.engine.model.load import LoadedModel, Tokens
from agentkv.engine.run.graphs import DecodeGraphs, fill
from agentkv.engine.run.staging import Staging
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.types import IntArray
from agentkv.kernels.fp8 import FP8
from agentkv.kernels.kv_store import kv_store


def prepare(model: LoadedModel, *, deterministic: bool) -> None:
    """Let a model of our own go by fused kernels. Before memory is divided: it takes some."""
    if isinstance(model, Llama):
        model.fuse(FIXED_ROWS if deterministic else None)


class DeviceRunner:
    """As `ModelRunner`, for a model and a pool on `device`; `prepare` the model first.

    `bit_exact`: as there, in bfloat16 too; only with a deterministic backend. Graphs serve decoding
    steps of our own architectures whose attention is not deterministic (that one's list of work has
    no fixed size) and takes no cascade.
    """

    def __init__(
        self,
        model: LoadedModel,
        pool: KVPool,
        attention: AttentionBackend,
        device: Device,
        *,
        page_size: int,
        graphs: bool,
        max_running: int,
        max_len: int,
    ) -> None:
        self.model = model
        self.pool = pool
        self.attention = attention
        self._device = device
        self._specs = model.specs()
        self._shapes = [Shape.of(spec, model.dtype, pool.dtype) for spec in self._specs]
        self._staging = Staging(device)
        own, kernels = isinstance(model, Llama), isinstance(attention, TritonAttention)
        fixed = isinstance(attention, TritonAttention) and attention.deterministic
        with torch.inference_mode():
            least = model.least_rows() if fixed and own else None
        self._rows = least or 1
        self.bit_exact = (
            least is not None
            and attention.bit_exact
            and pool.dtype in (model.dtype, torch.float32, FP8)
        )
        self.graphs: DecodeGraphs | None = None
        if graphs and own and kernels and not fixed:
            self.graphs = DecodeGraphs(
                device,
                self._staging,
                self._run,
                page_size=page_size,
                max_rows=max_running,
                max_len=max_len,
            )

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """As `launch`, for a batch whose ids are all known. When no logits are wanted, the step is waited
        for, so that its time can be taken."""
        logits = self.launch(batch)
        if not len(batch.logit_rows):
            self.wait()
        return logits

    def wait(self) -> None:
        """Until all that was launched is done."""
        self._device.record().synchronize()

    @torch.inference_mode()
    def launch(self, batch: ForwardBatch, before: torch.Tensor | None = None) -> torch.Tensor:
        """float32 logits `[len(batch.logit_rows), vocab]` on the device, in the order of
        `logit_rows`, valid until the next call. Returns before they are computed.

        `before`: int32 `[n]` on the device, tokens of the batch before: `request.unknown(row)` among the
        ids stands for number `row` of them.
        """
        if before is not None and not (batch.input_ids < 0).any():
            before = None
        backend, tables = self.attention, (batch.qo_indptr, batch.kv_indptr, batch.kv_indices)
        if isinstance(backend, TritonAttention):
            layout = backend.layout(*tables, self._shapes)
            one = layout.one if layout.new is None and layout.shared is None else None
            if self.graphs is not None and one is not None and self.graphs.suits(batch, one):
                return self.graphs.run(batch, one, before)
            return self._step(
                batch, layout.tables, lambda parts: backend.place(layout, parts), before
            )
        if isinstance(backend, Staged):
            half = backend.layout(*tables)
            return self._step(batch, half.tables, lambda parts: backend.place(half, parts), before)
        plan = backend.plan(*tables)
        return self._step(batch, [], lambda parts: plan, before)

    def _step(
        self,
        batch: ForwardBatch,
        tables: list[IntArray],
        place: Callable[[list[torch.Tensor]], Any],
        before: torch.Tensor | None,
    ) -> torch.Tensor:
        """Kernel by kernel. `place` makes the plan of `tables` on the device."""
        wanted = len(batch.logit_rows)
        ids, positions, slots, logit_rows, *placed = self._staging.send(
            [
                _whole(batch.input_ids, self._rows),
                _whole(batch.positions, self._rows),
                _whole(batch.out_slots, self._rows, -1),
                _whole(batch.logit_rows, self._rows),
                *tables,
            ]
        )
        if before is not None:
            fill(ids, before)
        tokens = Tokens(ids=ids, positions=positions, logit_rows=logit_rows)
        return self._run(tokens, slots, place(placed))[:wanted]

    def _run(self, tokens: Tokens, slots: torch.Tensor, plan: Any) -> torch.Tensor:
        """A whole forward, by kernels alone where the model is our own."""

        def attend(layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
            store, scales = self.pool.layer(layer), self.pool.scales_of(layer)
            kv_store(kv[:, 0], kv[:, 1], store, slots, scales)
            return self.attention.run(q, store, plan, self._specs[layer], scales)

        return self.model.forward(tokens, attend)


def _whole(values: IntArray, rows: int, filler: int = 0) -> IntArray:
    """Padded to a whole multiple of `rows`."""
    missing = -len(values) % rows
    return np.pad(values, (0, missing), constant_values=filler) if missing else values
