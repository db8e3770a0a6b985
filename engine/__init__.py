"""The bundled engine: token ids in, token ids out, and the facts of each call.

Importing this package loads neither torch nor transformers; `Engine` does, when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv.engine import threads as _threads  # noqa: F401  (sets how threads wait, before torch)
from agentkv.engine.config import EngineConfig
from agentkv.engine.types import (
    CacheFacts,
    Choice,
    Miss,
    RenderedPrompt,
    RequestOutput,
    SamplingParams,
    Span,
    StreamEvent,
    Timings,
)

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

__all__ = [
    "CacheFacts",
    "Choice",
    "Engine",
    "EngineConfig",
    "Miss",
    "RenderedPrompt",
    "RequestOutput",
    "SamplingParams",
    "Span",
    "StreamEvent",
    "Timings",
]


def __getattr__(name: str) -> Any:
    if name == "Engine":
        from agentkv.engine.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
