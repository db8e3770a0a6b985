"""How many tokens a pool of so many bytes holds, for a model.

Shapes of some models are in `models.toml` (dated); for others, give the model's `config.json`.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentkv.engine.config import bytes_of

_WITHOUT_KV = ("linear", "mamba", "recurrent", "conv", "rwkv")
"""Kinds of layers (`layer_types`) that keep one state a sequence, and nothing a token."""


class UnknownModel(ValueError):
    """No shape is known; the message says what to give instead."""


def pool_tokens(size: str, model: str | None, *, kv_bytes: int = 2) -> int:
    """Tokens that fit into `size` (`8GiB`). `model`: a name, a folder or a `config.json`.
    `kv_bytes`: of one number (2 for 16 bits, 1 for FP8).

    Raises `UnknownModel`, or `InvalidRequest` for a size that cannot be read.
    """
    return max(1, bytes_of(size, "pool") // token_bytes(model, kv_bytes=kv_bytes))


def token_bytes(model: str | None, *, kv_bytes: int = 2) -> int:
    """Bytes of K and V of one token over all layers. Layers with a window count like the others:
    of a shared prefix, all is kept."""
    if model is None:
        raise UnknownModel("a pool in bytes needs --model (or say --pool-tokens).")
    path = Path(model).expanduser()
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise UnknownModel(f"there is no config.json in {path.parent}.")
    if path.is_file():
        return kv_bytes * _of_config(path)
    name = _name(model)
    best = max((k for k in _shapes() if f"-{k}-" in f"-{name}-"), key=len, default=None)
    if best is None:
        known = ", ".join(sorted(_shapes()))
        raise UnknownModel(
            f"the shape of {model} is not known here ({known}); give the path of its config.json, "
            "or --pool-tokens."
        )
    return kv_bytes * _shapes()[best]


def _name(model: str) -> str:
    """`meta-llama/Meta-Llama-3.1-8B-Instruct` and `llama3.1:8b` alike."""
    name = re.sub(r"[\s/:_@]+", "-", model.lower())
    return re.sub(
        r"\b(llama|qwen|phi)-?(?=\d+(?:\.\d+)?(?:-|$))", lambda m: _SPELT[m.group(1)], name
    )


_SPELT = {"llama": "llama-", "qwen": "qwen", "phi": "phi-"}


def _of_config(path: Path) -> int:
    """Numbers (not bytes) of one token. Raises `UnknownModel`."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        found = found.get("text_config") or found.get("llm_config") or found
        layers = _layers(found)
        if found.get("kv_lora_rank"):
            return layers * (int(found["kv_lora_rank"]) + int(found["qk_rope_head_dim"]))
        heads = int(found["num_attention_heads"])
        dim = found.get("head_dim") or int(found["hidden_size"]) // heads
        numbers = 2 * layers * int(found.get("num_key_value_heads") or heads) * int(dim)
        if numbers <= 0:
            raise ValueError(f"{layers} layers")
        return numbers
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise UnknownModel(f"{path} does not say layers, heads and their size: {error}") from error


def _layers(config: dict[str, Any]) -> int:
    """Layers that keep K and V of each token."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        return sum(not any(w in str(kind) for w in _WITHOUT_KV) for kind in kinds)
    layers = int(config["num_hidden_layers"])
    every = config.get("full_attention_interval") or config.get("attn_layer_period")
    return layers // int(every) if every else layers


@cache
def _shapes() -> dict[str, int]:
    """Numbers of one token, by name."""
    text = (files("agentkv.trace") / "models.toml").read_text("utf-8")
    return {
        name: row["layers"] * (row.get("latent") or 2 * row["kv_heads"] * row["head_dim"])
        for name, row in tomllib.loads(text).items()
        if isinstance(row, dict)
    }
