"""One step's work as CSR tables: what the scheduler hands to the model runner."""

from __future__ import annotations

from dataclasses import dataclass

from agentkv.engine.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBatch:
    """The token axis is the concatenation of each sequence's new tokens (a prefill chunk or one).

    input_ids, positions, out_slots: int32 `[tokens]`. `out_slots` is where the K/V of each new
    token is written. qo_indptr: int32 `[seqs + 1]`, rows of sequence i are
    `[qo_indptr[i], qo_indptr[i+1])`. kv_indptr: int32 `[seqs + 1]` into kv_indices, int32, the
    slot of every position of the sequence from 0 on, the new ones included (so the last rows of a
    sequence are its last positions). logit_rows: int32, the token rows whose logits are wanted,
    ascending.
    """

    input_ids: IntArray
    positions: IntArray
    out_slots: IntArray
    qo_indptr: IntArray
    kv_indptr: IntArray
    kv_indices: IntArray
    logit_rows: IntArray
