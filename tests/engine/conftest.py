"""Tiny random models of every architecture, and batches built by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.sched.batch import ForwardBatch

BASE: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Part:
    """`new` ids of one sequence from position `start` on; `slots` of all its positions."""

    new: Any
    start: int
    slots: Any


def join(*parts: Part, all_rows: bool = True) -> ForwardBatch:
    """A batch of several sequences' parts; logits of all rows, or of each part's last one."""

    def flat(arrays: Any) -> Any:
        return np.concatenate([np.asarray(a) for a in arrays]).astype(np.int32)

    def pointers(lengths: list[int]) -> Any:
        return np.cumsum([0, *lengths]).astype(np.int32)

    ends = [p.start + len(p.new) for p in parts]
    qo = pointers([len(p.new) for p in parts])
    return ForwardBatch(
        input_ids=flat(p.new for p in parts),
        positions=flat(np.arange(p.start, e) for p, e in zip(parts, ends, strict=True)),
        out_slots=flat(p.slots[p.start : e] for p, e in zip(parts, ends, strict=True)),
        qo_indptr=qo,
        kv_indptr=pointers(ends),
        kv_indices=flat(p.slots[:e] for p, e in zip(parts, ends, strict=True)),
        logit_rows=np.arange(qo[-1], dtype=np.int32) if all_rows else (qo[1:] - 1).astype(np.int32),
    )


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Weights large enough that a wrong rotation, norm or mask shows in the logits."""
    maker = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=maker)
            if value.ndim > 1:
                value.copy_(noise * 0.12)
            else:
                value.copy_(
                    noise * 0.2 + (0.0 if name.endswith("bias") or "norm" not in name else 1.0)
                )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Any]]:
    """`tiny(config_class, **overrides)` -> (directory, the transformers model), made once each."""
    import transformers

    made: dict[str, tuple[Path, Any]] = {}

    def make(config: str, **overrides: Any) -> tuple[Path, Any]:
        key = config + repr(sorted(overrides.items()))
        if key not in made:
            settings = getattr(transformers, config)(**{**BASE, **overrides})
            model = transformers.AutoModelForCausalLM.from_config(
                settings, attn_implementation="eager"
            ).eval()
            randomise(model, 7)
            path = tmp_path_factory.mktemp("tiny")
            model.save_pretrained(path)
            made[key] = (path, model)
        return made[key]

    return make


@pytest.fixture(scope="session")
def paged() -> Callable[..., Any]:
    """`paged(rng, length, page_size, pool)` -> slots of a sequence in randomly placed pages."""

    def place(rng: np.random.Generator, length: int, page: int, slots: int) -> Any:
        pages = rng.permutation(slots // page)[: -(-length // page)]
        return (pages[:, None] * page + np.arange(page)).ravel()[:length]

    return place


@pytest.fixture(scope="session")
def part() -> type[Part]:
    return Part


@pytest.fixture(scope="session")
def batch() -> Callable[..., ForwardBatch]:
    return join
