"""A model's shape, read from its `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.engine.errors import UnsupportedModel

OWN = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "SmolLM3ForCausalLM",
}
"""Architectures that our own forward runs; any other goes through the adapter."""

# What a config.json may leave out because its architecture's default says so.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "MistralForCausalLM": {
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
    "Qwen2ForCausalLM": {
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
    },
    "Qwen3ForCausalLM": {
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
    },
    "SmolLM3ForCausalLM": {
        "num_key_value_heads": 4,
        "rope_theta": 2000000.0,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
        "no_rope_layer_interval": 4,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary frequencies: `kind` is default, linear or llama3; the numbers mean what they mean in
    a checkpoint's `rope_parameters` (`rope_scaling` in older ones)."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The facts that the engine needs of a model.

    `max_position`: the longest sequence whose cached keys stay valid, in tokens.
    `layer_windows[i]`: the sliding window of layer i in tokens, or None. `layer_rope[i]`: whether
    layer i rotates. `rope` is None where the adapter leaves rotation to the model's own code.
    """

    architecture: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_position: int
    rms_norm_eps: float
    eos_token_ids: tuple[int, ...]
    tie_embeddings: bool
    rope: Rope | None
    layer_windows: tuple[int | None, ...]
    layer_rope: tuple[bool, ...]
    own: bool

    @classmethod
    def load(cls, model_dir: Path) -> ModelConfig:
        """Read `config.json` (and `generation_config.json`) of a directory.

        Raises `UnsupportedModel` when the model needs code of its own, is quantised, or is not a
        decoder; `own` is False when only the adapter can run it (its fields are then filled by
        the adapter).
        """
        raw = read_json(model_dir / "config.json")
        return cls.parse(raw, eos_ids(model_dir, raw))

    @classmethod
    def parse(cls, raw: Mapping[str, Any], eos: tuple[int, ...] = ()) -> ModelConfig:
        """From the content of a `config.json` of one of the `OWN` architectures."""
        name = architecture(raw)
        if reason := not_own(raw):
            raise UnsupportedModel(f"{name} is not one of agentkv's own architectures: {reason}.")
        c = {**_DEFAULTS.get(name, {}), **{k: v for k, v in raw.items() if v is not None}}
        heads, hidden = int(c["num_attention_heads"]), int(c["hidden_size"])
        layers = int(c["num_hidden_layers"])
        rope = _rope(c)
        return cls(
            architecture=name,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=int(c.get("num_key_value_heads", heads)),
            head_dim=int(c.get("head_dim", hidden // heads)),
            hidden_size=hidden,
            intermediate_size=int(c["intermediate_size"]),
            vocab_size=int(c["vocab_size"]),
            max_position=int(c.get("max_position_embeddings", 2048)),
            rms_norm_eps=float(c.get("rms_norm_eps", 1e-6)),
            eos_token_ids=eos or _ids(c.get("eos_token_id")),
            tie_embeddings=bool(c.get("tie_word_embeddings", False)),
            rope=rope,
            layer_windows=_windows(name, c, raw, layers),
            layer_rope=_rotating(name, c, layers),
            own=True,
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model's directory; `UnsupportedModel` when missing or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnsupportedModel(
            f"{path.parent} holds no {path.name}, so it is not a model directory."
        ) from None
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"{path} cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise UnsupportedModel(f"{path} must hold a JSON object.")
    return value


def architecture(raw: Mapping[str, Any]) -> str:
    """The architecture's class name. Raises `UnsupportedModel` for what can never run."""
    if raw.get("auto_map"):
        raise UnsupportedModel(
            "The model ships its own Python code (auto_map in config.json), and agentkv never runs "
            "code that comes with a model. Use a checkpoint whose architecture transformers has."
        )
    if raw.get("quantization_config"):
        method = dict(raw["quantization_config"]).get("quant_method", "unknown")
        raise UnsupportedModel(
            f"The checkpoint is quantised ({method}), which is not supported. Use the float32, "
            "bfloat16 or float16 weights of the same model."
        )
    if raw.get("is_encoder_decoder"):
        raise UnsupportedModel("The model is an encoder-decoder; agentkv runs decoder-only models.")
    names = raw.get("architectures") or []
    if not names:
        raise UnsupportedModel(
            "config.json names no architecture (the `architectures` list is missing)."
        )
    return str(names[0])


def not_own(raw: Mapping[str, Any]) -> str | None:
    """Why our own forward cannot run this model, or None when it can."""
    name = architecture(raw)
    if name not in OWN:
        return "another architecture"
    if raw.get("hidden_act", "silu") != "silu":
        return f"activation {raw['hidden_act']}"
    rope = _rope_dict(raw)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear", "llama3", "dynamic"):
        return f"rope type {kind}"
    if float(rope.get("partial_rotary_factor", raw.get("partial_rotary_factor") or 1.0)) != 1.0:
        return "partial rotation"
    types = set(raw.get("layer_types") or ())
    if types - {"full_attention", "sliding_attention"}:
        return f"layer types {sorted(types)}"
    heads = int(raw["num_attention_heads"])
    if int(raw.get("head_dim") or int(raw["hidden_size"]) // heads) % 2:
        return "an odd head size"
    return None


def eos_ids(model_dir: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    """End tokens: `generation_config.json` first (it lists all of them), `config.json` second."""
    path = model_dir / "generation_config.json"
    listed = _ids(read_json(path).get("eos_token_id")) if path.exists() else ()
    return listed or _ids(raw.get("eos_token_id"))


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, list) else (int(value),)


def _rope_dict(c: Mapping[str, Any]) -> dict[str, Any]:
    found = c.get("rope_parameters") or c.get("rope_scaling") or {}
    return dict(found)


def _rope(c: Mapping[str, Any]) -> Rope:
    p = _rope_dict(c)
    kind = str(p.get("rope_type", p.get("type", "default")))
    longest = int(c.get("max_position_embeddings", 2048))
    if kind == "dynamic":
        # Frequencies change only for sequences longer than the trained length, which
        # `max_position` excludes: cached keys would be wrong from there on.
        kind = "default"
    return Rope(
        theta=float(p.get("rope_theta", c.get("rope_theta", 10000.0))),
        kind=kind,
        factor=float(p.get("factor", 1.0)),
        low_freq_factor=float(p.get("low_freq_factor", 1.0)),
        high_freq_factor=float(p.get("high_freq_factor", 4.0)),
        original_max_position=int(p.get("original_max_position_embeddings", longest)),
    )


def _windows(
    name: str, c: Mapping[str, Any], raw: Mapping[str, Any], layers: int
) -> tuple[int | None, ...]:
    # Mistral's default window applies when the key is absent; an explicit null means none.
    window = (
        None
        if "sliding_window" in raw and raw["sliding_window"] is None
        else c.get("sliding_window")
    )
    if name == "MistralForCausalLM":
        return (None if window is None else int(window),) * layers
    if name == "LlamaForCausalLM" or not c.get("use_sliding_window") or window is None:
        return (None,) * layers
    types = c.get("layer_types")
    if types is None and name == "SmolLM3ForCausalLM":
        slides = [not r for r in _rotating(name, c, layers)]
    elif types is None:
        slides = [i >= int(c["max_window_layers"]) for i in range(layers)]
    else:
        slides = [t == "sliding_attention" for t in types]
    return tuple(int(window) if s else None for s in slides)


def _rotating(name: str, c: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    if name != "SmolLM3ForCausalLM":
        return (True,) * layers
    listed = c.get("no_rope_layers")  # despite its name, 1 stands for a layer that rotates
    if listed is not None:
        return tuple(bool(v) for v in listed[:layers])
    every = int(c["no_rope_layer_interval"])
    return tuple((i + 1) % every != 0 for i in range(layers))
