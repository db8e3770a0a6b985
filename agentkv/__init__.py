"""Prefix KV reuse for agents: lay a prompt out for it, run it, and see what was reused and why not.

Importing this package loads no torch, no transformers and no LangChain; each name below brings in
what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv.langchain import AgentKV, ChatAgentKV
    from agentkv.layout import arrange
    from agentkv.prompt import Document, static, volatile
    from agentkv.report import CacheReport

    __version__: str

__all__ = [
    "AgentKV",
    "CacheReport",
    "ChatAgentKV",
    "Document",
    "__version__",
    "arrange",
    "static",
    "volatile",
]

_HOME = {
    "AgentKV": "agentkv.langchain",
    "CacheReport": "agentkv.report",
    "ChatAgentKV": "agentkv.langchain",
    "Document": "agentkv.prompt",
    "arrange": "agentkv.layout",
    "static": "agentkv.prompt",
    "volatile": "agentkv.prompt",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("agentkv")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
