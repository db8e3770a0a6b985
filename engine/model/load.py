"""A directory with config.json and safetensors, as a model that can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.model.config import ModelConfig, not_own, read_json

Attend = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]
"""`attend(layer, q, kv)`: write the new tokens' K/V to the pool, return their attention.

q `[rows, heads, head_dim]`; kv `[rows, 2, kv_heads, head_dim]`, rotated already; both in the
model's dtype. The result is `[rows, heads * head_dim]`, valid until the next call.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a forward reads: int64 `[rows]` ids and positions (padding rows at the end), and the
    rows whose logits are wanted, int64 `[n]`."""

    ids: torch.Tensor
    positions: torch.Tensor
    logit_rows: torch.Tensor


class LoadedModel(Protocol):
    """A model in memory: token ids in, logits out; K and V live with the caller."""

    config: ModelConfig
    fingerprint: str
    dtype: torch.dtype
    device: torch.device

    def specs(self) -> tuple[AttentionSpec, ...]:
        """One for each layer."""
        ...

    def least_rows(self) -> int | None:
        """Rows a forward needs for bit-exact rows, or None where that cannot be had."""
        ...

    def forward(self, tokens: Tokens, attend: Attend) -> torch.Tensor:
        """float32 logits `[n, vocab]`."""
        ...


def load_model(model_dir: Path, *, dtype: torch.dtype, device: str = "cpu") -> LoadedModel:
    """Load the model in `model_dir`, by our own forward or through the transformers adapter.

    Raises `UnsupportedModel` with the reason when it cannot run.
    """
    from agentkv.engine.model.fingerprint import fingerprint

    raw = read_json(model_dir / "config.json")
    if not_own(raw) is None:
        from agentkv.engine.model.llama import Llama

        config = ModelConfig.load(model_dir)
        return Llama.load(
            model_dir, config, fingerprint(model_dir), dtype=dtype, device=torch.device(device)
        )
    from agentkv.engine.model.adapter import Adapter

    return Adapter.load(model_dir, fingerprint(model_dir), dtype=dtype, device=torch.device(device))
