"""What a model can take, without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.language_models.model_profile import ModelProfile


def local_profile(engine: Any, model: str, options: Mapping[str, Any]) -> ModelProfile | None:
    """The profile of a model whose files are here; None when they are not (nothing is fetched)."""
    window = getattr(engine, "max_model_len", None)
    if not isinstance(window, int):
        window = _window(model, options.get("max_model_len"))
    if window is None:
        return None
    return ModelProfile(
        max_input_tokens=window,
        max_output_tokens=window,
        text_inputs=True,
        image_inputs=False,
        audio_inputs=False,
        video_inputs=False,
        text_outputs=True,
        tool_calling=False,
        structured_output=False,
    )


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
