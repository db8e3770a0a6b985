"""Logits against transformers, at every position, over a cached prefix. `-s` prints the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.load import load_model
from agentkv.engine.run.runner import ModelRunner

LENGTH = 48
LIMIT = 1e-4

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama-mha-tied": ("LlamaConfig", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama-bias": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": ("LlamaConfig", {"head_dim": 24}),
    "llama3-rope": ("LlamaConfig", {"rope_parameters": LLAMA3}),
    "llama-linear-rope": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}},
    ),
    "llama-dynamic-rope": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "mistral-window": ("MistralConfig", {"sliding_window": 9}),
    "smollm3": ("SmolLM3Config", {"no_rope_layer_interval": 2}),
    "smollm3-window": (
        "SmolLM3Config",
        {"use_sliding_window": True, "sliding_window": 9, "no_rope_layer_interval": 2},
    ),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2},
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
}
ADAPTED: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 16, "sliding_window": 9, "attn_logit_softcapping": 5.0},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "head_dim": 16,
            "sliding_window": 9,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "phi3": ("Phi3Config", {"sliding_window": 9}),
    "gpt-neox": ("GPTNeoXConfig", {}),
    "olmo2": ("Olmo2Config", {}),
    "stablelm": ("StableLmConfig", {}),
    "cohere2": ("Cohere2Config", {"sliding_window": 9, "logit_scale": 1.0}),
    "granite": ("GraniteConfig", {"attention_multiplier": 0.2}),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512}),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
    ),
    "llama-yarn": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 1e4,
                "original_max_position_embeddings": 64,
            }
        },
    ),
}
_rows: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Any:
    yield
    head = f"{'architecture':<20} {'path':<8} {'page':>4} {'prefix':>6} {'max |diff|':>11} {'logit std':>9}"
    print("\n" + "\n".join([head, *_rows]))


def compare(
    kind: str,
    name: str,
    config: str,
    options: dict[str, Any],
    tiny: Any,
    part: Any,
    batch: Any,
    paged: Any,
) -> None:
    path, reference = tiny(config, **options)
    loaded = load_model(path, dtype=torch.float32)
    assert loaded.config.own == (kind == "own")
    c = loaded.config
    rng = np.random.default_rng(3)
    ids = rng.integers(3, c.vocab_size, LENGTH).astype(np.int32)
    with torch.inference_mode():
        expected = reference(torch.from_numpy(ids).long()[None], use_cache=False).logits[0].float()
    assert float(expected.std()) > 0.1, "logits too small to show a mistake"
    for page in (1, 16):
        for prefix in sorted({page - 1, page, page + 1, 2 * page}):
            pool = KVPool(
                layers=c.num_layers,
                slots=128,
                kv_heads=c.num_kv_heads,
                head_dim=c.head_dim,
                dtype=torch.float32,
            )
            for i in range(c.num_layers):
                pool.layer(i).normal_(std=50)  # what other requests left behind
            runner = ModelRunner(loaded, pool)
            slots = paged(rng, LENGTH, page, 128)
            found = []
            for low, high in ((0, prefix), (prefix, LENGTH)):
                if high > low:
                    found.append(runner.forward(batch(part(ids[low:high], low, slots))))
            error = float((torch.cat(found) - expected).abs().max())
            _rows.append(
                f"{name:<20} {kind:<8} {page:>4} {prefix:>6} {error:>11.2e} {float(expected.std()):>9.3f}"
            )
            assert error < LIMIT


@pytest.mark.parametrize("name", OWN)
def test_own_architectures_match_transformers(
    name: str, tiny: Callable[..., Any], part: Any, batch: Any, paged: Any
) -> None:
    compare("own", name, *OWN[name], tiny, part, batch, paged)


@pytest.mark.parametrize("name", ADAPTED)
def test_adapted_architectures_match_transformers(
    name: str, tiny: Callable[..., Any], part: Any, batch: Any, paged: Any
) -> None:
    compare("adapter", name, *ADAPTED[name], tiny, part, batch, paged)
