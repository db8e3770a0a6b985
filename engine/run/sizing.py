"""How many tokens the KV pool of a device holds: by formula, once the weights are there.

    in all * gpu_memory  =  weights and all that was there before
                          + one step's numbers + graphs + a reserve for the libraries
                          + pool

A step's numbers: what a forward over `max_batch_tokens` rows holds at once, and the logits. With prompt
log-probabilities each row has logits: those are counted for `LOGIT_ROWS` rows, and a batch that wants
more takes them from the reserve or, in the end, from what `gpu_memory` left.
"""

from __future__ import annotations

import torch

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.model.config import ModelConfig
from agentkv.engine.run.graphs import MOST_BYTES

RESERVE = 768 << 20
"""Workspaces of the matrix library, compiled kernels, the tables of a step."""

LOGIT_ROWS = 1024


SPLITS = 64
"""Pieces that a decoding sequence's keys are cut into at most (kernels/tuning.toml)."""


def step_bytes(
    config: ModelConfig, dtype: torch.dtype, rows: int, sequences: int, pieces: int = 1
) -> int:
    """What a forward of so many rows holds at most, the logits of `sequences` of them included.
    `pieces`: into how many the keys of a new token are cut at most."""
    heads = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    wide = 4 * config.hidden_size + heads + 3 * config.intermediate_size
    # Attention's parts, in float32, before they are merged.
    cut = max(SPLITS * sequences, pieces * rows if pieces > 1 else 0)
    parts = 4 * config.num_heads * config.head_dim * cut
    # Logits as they come, in float32, where graphs leave them, and for log-probabilities.
    logits = (dtype.itemsize + 12) * config.vocab_size * max(sequences, min(rows, LOGIT_ROWS))
    return rows * wide * dtype.itemsize + parts + logits


def device_pool_tokens(
    config: ModelConfig,
    dtype: torch.dtype,
    *,
    bytes_per_token: int,
    free: int,
    total: int,
    share: float,
    rows: int,
    sequences: int,
    graphs: bool,
    window: int,
    pieces: int = 1,
) -> int:
    """Tokens of the pool. `free`, `total`: bytes of the device, with the weights in place.

    Raises `InvalidRequest` when not even one context window of `window` tokens fits.
    """
    taken = (
        step_bytes(config, dtype, rows, sequences, pieces) + RESERVE + (MOST_BYTES if graphs else 0)
    )
    room = int(total * share) - (total - free) - taken
    tokens = max(0, room) // bytes_per_token
    if tokens < window:
        gib = 2.0**30
        raise InvalidRequest(
            f"The KV pool would have {max(0, room) / gib:.2f} GiB, or {tokens} tokens, which is less "
            f"than one context window of {window}: of {total / gib:.1f} GiB, {(total - free) / gib:.1f} "
            f"are in use and {taken / gib:.1f} set aside for a step. Give a smaller max_model_len or "
            "max_batch_tokens, a larger gpu_memory, kv_dtype='fp8', or pool_tokens.",
            param="gpu_memory",
        )
    return tokens
