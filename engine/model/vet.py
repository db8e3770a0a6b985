"""Which model directories may be loaded: whole, in safetensors, with no code of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentkv.engine.errors import UnsupportedModel

_INDEX = "model.safetensors.index.json"


def vet(path: Path, name: str) -> Path:
    """`path`, if it holds a model that can be loaded. Raises `UnsupportedModel` with what is wrong.

    `name` is what the user called it, for the message.
    """
    vet_config(path, name)
    if not any(path.glob("*.safetensors")):
        raise no_safetensors(name)
    if (path / _INDEX).is_file():
        shards = set(_read(path / _INDEX, name).get("weight_map", {}).values())
        if missing := sorted(s for s in shards if not (path / str(s)).is_file()):
            raise UnsupportedModel(
                f"{name} lacks {len(missing)} of its {len(shards)} weight files, {missing[0]} for one. "
                "Fetch it again."
            )
    if not (path / "tokenizer.json").is_file():
        raise UnsupportedModel(
            f"{name} has no tokenizer.json. Make one with transformers: "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)."
        )
    return path


def vet_config(path: Path, name: str) -> None:
    """The part of `vet` that needs config.json only, so that it can run before weights are fetched."""
    if not (path / "config.json").is_file():
        raise UnsupportedModel(f"{name} has no config.json, so it is not a model directory.")
    config = _read(path / "config.json", name)
    if "auto_map" in config and not _transformers_knows(config.get("model_type")):
        raise UnsupportedModel(
            f"{name} needs code of its own (auto_map in config.json), which is never run. "
            "Choose a model that transformers has a class for."
        )


def no_safetensors(name: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name} has no safetensors weights. Pickled weights can run code when they are loaded, so "
        "they are not read. Look for a safetensors version, or convert it."
    )


def _read(path: Path, name: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"{name} has a {path.name} that cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise UnsupportedModel(f"{name} has a {path.name} that is not a JSON object.")
    return value


def _transformers_knows(model_type: object) -> bool:
    from transformers import CONFIG_MAPPING

    return model_type in CONFIG_MAPPING
