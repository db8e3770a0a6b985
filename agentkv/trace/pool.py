"""How many tokens a pool of so many bytes holds, for a model.

Shapes of some models are in `models.toml` (dated); for others, give the model's `config.json`.
"""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentkv.engine.config import bytes_of


class UnknownModel(ValueError):
    """No shape is known; the message says what to give instead."""


def pool_tokens(size: str, model: str | None, *, kv_bytes: int = 2) -> int:
    """Tokens that fit into `size` (`8GiB`). `model`: a name, a folder or a `config.json`.
    `kv_bytes`: of one number (2 for 16 bits, 1 for FP8).

    Raises `UnknownModel`, or `InvalidRequest` for a size that cannot be read.
    """
    return max(1, bytes_of(size, "pool") // token_bytes(model, kv_bytes=kv_bytes))


def token_bytes(model: str | None, *, kv_bytes: int = 2) -> int:
    """Bytes of K and V of one token over all layers."""
    if model is None:
        raise UnknownModel("a pool in bytes needs --model (or say --pool-tokens).")
    path = Path(model).expanduser()
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        return kv_bytes * _of_config(path)
    name = model.lower()
    best = max((k for k in _shapes() if k in name), key=len, default=None)
    if best is None:
        known = ", ".join(sorted(_shapes()))
        raise UnknownModel(
            f"the shape of {model} is not known here ({known}); give the path of its config.json, "
            "or --pool-tokens."
        )
    layers, heads, dim = _shapes()[best]
    return kv_bytes * 2 * layers * heads * dim


def _of_config(path: Path) -> int:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        found = found.get("text_config") or found
        heads = found["num_attention_heads"]
        dim = found.get("head_dim") or found["hidden_size"] // heads
        return int(2 * found["num_hidden_layers"] * (found.get("num_key_value_heads") or heads) * dim)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownModel(f"{path} does not say layers, heads and their size: {error}") from error


@cache
def _shapes() -> dict[str, tuple[int, int, int]]:
    text = (files("agentkv.trace") / "models.toml").read_text("utf-8")
    return {
        name: (row["layers"], row["kv_heads"], row["head_dim"])
        for name, row in tomllib.loads(text).items()
        if isinstance(row, dict)
    }
