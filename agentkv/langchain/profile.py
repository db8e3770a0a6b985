"""What a model can take and do, without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast, get_type_hints

from langchain_core.language_models.model_profile import ModelProfile


def local_profile(engine: Any, model: str, options: Mapping[str, Any]) -> ModelProfile | None:
    """The profile of a model whose files are here; None when they are not (nothing is fetched)."""
    window = getattr(engine, "max_model_len", None)
    if not isinstance(window, int):
        window = _window(model, options.get("max_model_len"))
    return None if window is None else _profile(window)


def remote_profile(window: int | None = None) -> ModelProfile:
    """The profile of a model behind a server. Its window is known to those who asked for it."""
    return _profile(window)


def _profile(window: int | None) -> ModelProfile:
    """Tools and objects are a matter of the grammar, which every model here is held to."""
    values: dict[str, Any] = {
        "text_inputs": True,
        "image_inputs": False,
        "audio_inputs": False,
        "video_inputs": False,
        "text_outputs": True,
        "tool_calling": True,
        "tool_choice": True,
        "tool_call_streaming": True,
        "structured_output": True,
    }
    if window is not None:
        values["max_input_tokens"] = values["max_output_tokens"] = window
    known = get_type_hints(ModelProfile)  # cores differ in what they know, and warn of the rest
    return cast("ModelProfile", {k: v for k, v in values.items() if k in known})


def _window(model: str, limit: Any) -> int | None:
    from agentkv.engine.errors import EngineError
    from agentkv.engine.model.store import resolve

    try:
        path = resolve(model, pull=False) / "config.json"
        found = json.loads(path.read_text(encoding="utf-8")).get("max_position_embeddings")
    except (EngineError, OSError, ValueError):
        return None
    if not isinstance(found, int):
        return None
    return min(found, limit) if isinstance(limit, int) else found
