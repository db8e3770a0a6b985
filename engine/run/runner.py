"""One step: a batch of tokens through the model, K and V into the pool, logits out."""

from __future__ import annotations

import torch

from agentkv.engine.attention.base import AttentionBackend
from agentkv.engine.attention.cpu import CpuAttention
from agentkv.engine.attention.probe import row_rule
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.load import LoadedModel, Tokens
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.types import IntArray
from agentkv.kernels.fp8 import FP8


class ModelRunner:
    """Runs batches of one model over one pool. Not thread-safe; make it on the thread that uses it
    (the number of threads it computes with is the creating thread's). On the CPU; elsewhere it works,
    and `DeviceRunner` is the one that is made for it.

    `bit_exact`: a row's logits depend on its own sequence only, to the last bit, whatever else is
    in the batch and wherever its prefill was cut. Promised for models in float32 over a float32 or
    FP8 pool; probed when the runner is made, since it rests on how this CPU's kernels treat their
    rows.
    """

    def __init__(
        self, model: LoadedModel, pool: KVPool, *, attention: AttentionBackend | None = None
    ) -> None:
        self.model = model
        self.pool = pool
        self._specs = model.specs()
        if len(self._specs) != pool.layers:
            raise ValueError(f"the model has {len(self._specs)} layers and the pool {pool.layers}")
        if attention is None:
            rule, exact = row_rule(self._specs[0])
            attention = CpuAttention(rule, bit_exact=exact)
        self.attention = attention
        with torch.inference_mode():
            least = model.least_rows()
        self._rows = least or 1
        self.bit_exact = (
            least is not None
            and attention.bit_exact
            and model.dtype == torch.float32
            and pool.dtype in (torch.float32, FP8)
        )

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """float32 logits `[len(batch.logit_rows), vocab]`, in the order of `logit_rows`.

        Writes K and V of each new token to its slot in `batch.out_slots`.
        """
        count = len(batch.input_ids)
        wanted = len(batch.logit_rows)
        slots = torch.from_numpy(batch.out_slots).long()
        first = int(batch.out_slots[0])
        # One run of slots (always so for a single decode) is a plain copy.
        run = (
            slice(first, first + count)
            if bool((slots == torch.arange(first, first + count)).all())
            else None
        )
        device = self.model.device
        where = slots.to(device) if run is None else run
        plan = self.attention.plan(batch.qo_indptr, batch.kv_indptr, batch.kv_indices)

        def attend(layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
            new = kv[:count].transpose(0, 1)
            # A broken number (overflow in one request) must not reach the slots: others read
            # past their own end, weighting with an exact 0, and 0 x inf would be NaN.
            new.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            # Narrowed once, here: a row's own prefill reads back what everybody else will read.
            self.pool.put(layer, where, new)
            return self.attention.run(
                q, self.pool.layer(layer), plan, self._specs[layer], self.pool.scales_of(layer)
            )

        tokens = Tokens(
            ids=_padded(batch.input_ids, self._rows).to(device),
            positions=_padded(batch.positions, self._rows).to(device),
            logit_rows=_padded(batch.logit_rows, self._rows if wanted else 0).to(device),
        )
        return self.model.forward(tokens, attend)[:wanted]


EXACT_ROWS = 16
"""Up to so many rows, and in multiples of it above, a step has the row count it has."""


def _padded(values: IntArray, least: int) -> torch.Tensor:
    """int64, with zeros behind it: at least `least` rows, and few distinct row counts in all.

    The matrix library keeps a compiled kernel (about 90 KiB) for each row count that it has seen;
    with every count between 1 and the token budget, a server's memory would creep for hours.
    """
    found = torch.from_numpy(values).long()
    count = found.shape[0]
    rows = count if count <= EXACT_ROWS else -(-count // EXACT_ROWS) * EXACT_ROWS
    missing = max(rows, least) - count
    return torch.cat((found, found.new_zeros(missing))) if missing > 0 else found
