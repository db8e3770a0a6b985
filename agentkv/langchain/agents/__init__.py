"""Plug-ins for `langchain.agents.create_agent`: prompts that stay stable while an agent works.

    create_agent(model, tools, middleware=[..., CacheLayoutMiddleware(dynamic="tail_message")])

`langchain` is optional (`pip install "agentkv[langchain]"`); it is imported with the first of these
names that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv.langchain.agents.clear import ClearToolUsesSticky
    from agentkv.langchain.agents.layout import CacheLayoutMiddleware
    from agentkv.langchain.agents.split import split_prompt
    from agentkv.langchain.agents.summary import prefix_preserving_summarizer
    from agentkv.langchain.agents.trim import trim_in_jumps

__all__ = [
    "CacheLayoutMiddleware",
    "ClearToolUsesSticky",
    "prefix_preserving_summarizer",
    "split_prompt",
    "trim_in_jumps",
]

_HOME = {
    "CacheLayoutMiddleware": "layout",
    "ClearToolUsesSticky": "clear",
    "prefix_preserving_summarizer": "summary",
    "split_prompt": "split",
    "trim_in_jumps": "trim",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
