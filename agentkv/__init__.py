"""Prefix KV reuse for agents: lay a prompt out for it, run it, and see what was reused and why not.

Importing this package loads no torch, no transformers and no LangChain; each name below brings in
what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv.langchain import AgentKV, ChatAgentKV
    from agentkv.langchain.agents import CacheLayoutMiddleware
    from agentkv.langchain.handler import CacheReportHandler, cache_report
    from agentkv.langchain.hints import CacheHintHandler
    from agentkv.layout import arrange, optimize
    from agentkv.prompt import Document, static, volatile
    from agentkv.report import CacheReport

    __version__: str

__all__ = [
    "AgentKV",
    "CacheHintHandler",
    "CacheLayoutMiddleware",
    "CacheReport",
    "CacheReportHandler",
    "ChatAgentKV",
    "Document",
    "__version__",
    "arrange",
    "cache_report",
    "optimize",
    "static",
    "volatile",
]

_HOME = {
    "AgentKV": "agentkv.langchain",
    "CacheHintHandler": "agentkv.langchain.hints",
    "CacheLayoutMiddleware": "agentkv.langchain.agents",
    "CacheReport": "agentkv.report",
    "CacheReportHandler": "agentkv.langchain.handler",
    "ChatAgentKV": "agentkv.langchain",
    "Document": "agentkv.prompt",
    "arrange": "agentkv.layout",
    "cache_report": "agentkv.langchain.handler",
    "optimize": "agentkv.layout",
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
