"""Tokens of a pool: known models, configurations, and what is said of unknown ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.trace.pool import UnknownModel, pool_tokens, token_bytes


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", 2 * 2 * 32 * 8 * 128),
        ("llama3.1:8b", 2 * 2 * 32 * 8 * 128),
        ("Qwen/Qwen2.5-7B-Instruct", 2 * 2 * 28 * 4 * 128),
        # Not DeepSeek's own shape: what it was distilled into.
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 2 * 2 * 64 * 8 * 128),
        ("deepseek-ai/DeepSeek-R1-0528", 2 * 61 * 576),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 2 * 2 * 30 * 3 * 64),
        ("microsoft/phi-4", 2 * 2 * 40 * 10 * 128),
    ],
)
def test_names_of_models(model: str, expected: int) -> None:
    assert token_bytes(model) == expected
    assert pool_tokens("1GiB", model) == 2**30 // expected
    assert pool_tokens("1GiB", model, kv_bytes=1) == 2**30 // (expected // 2)


@pytest.mark.parametrize(
    ("config", "numbers"),
    [
        ({"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512}, 2 * 4 * 8 * 64),
        (
            {"text_config": {"num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 32,
                             "num_key_value_heads": 2, "hidden_size": 999}},
            2 * 4 * 2 * 32,
        ),
        (
            {"num_hidden_layers": 61, "num_attention_heads": 128, "hidden_size": 7168,
             "kv_lora_rank": 512, "qk_rope_head_dim": 64},
            61 * 576,
        ),
        (
            {"num_hidden_layers": 4, "num_attention_heads": 2, "hidden_size": 64,
             "layer_types": ["linear_attention"] * 3 + ["full_attention"]},
            2 * 1 * 64,
        ),
    ],
)  # fmt: skip
def test_a_configuration_says_it(tmp_path: Path, config: dict[str, Any], numbers: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert token_bytes(str(tmp_path)) == 2 * numbers
    assert token_bytes(str(tmp_path / "config.json"), kv_bytes=4) == 4 * numbers


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=r"gpt-4o is not known .*config\.json"):
        pool_tokens("8GiB", "gpt-4o")
    with pytest.raises(UnknownModel, match="needs --model"):
        pool_tokens("8GiB", None)
    with pytest.raises(UnknownModel, match=r"no config\.json"):
        token_bytes(str(tmp_path))
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4}')
    with pytest.raises(UnknownModel, match="does not say"):
        token_bytes(str(tmp_path))
    with pytest.raises(InvalidRequest, match="8GiB"):
        pool_tokens("eight", "phi-4")
