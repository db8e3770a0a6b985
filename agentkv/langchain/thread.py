"""Which conversation a call belongs to, as LangGraph names it: `thread_id`.

A graph puts it into the run's metadata; a caller without a graph has it in the configuration, which
core does not hand down. There the name comes by way of a context variable or of an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

_current: ContextVar[str | None] = ContextVar("agentkv_thread", default=None)


def of_metadata(metadata: Any) -> str | None:
    """The thread that a run's metadata names."""
    name = metadata.get("thread_id") if isinstance(metadata, Mapping) else None
    return str(name) if name else None


def of_config(config: RunnableConfig | None) -> str | None:
    """The thread of a call with this configuration, or of the graph that makes the call."""
    whole = ensure_config(config)
    return of_metadata(whole.get("metadata")) or of_metadata(whole.get("configurable"))


def current() -> str | None:
    """The thread of the call that is being made."""
    return _current.get()


@contextmanager
def within(name: str | None) -> Iterator[None]:
    """Calls made inside belong to the thread of this name, or to the one outside."""
    token = _current.set(name or _current.get())
    try:
        yield
    finally:
        _current.reset(token)
