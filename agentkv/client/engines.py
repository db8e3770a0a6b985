"""Engines of this process, one for each configuration, shared by everything that asks for it.

An engine holds a model and its cache: two of one configuration would share nothing. It is closed
when its last holder lets go, or when the process ends. A holder that is gone without a word holds
nothing any more, and closes nothing either: frameworks make a copy of a model for one call, and the
next copy wants the same cache. After a fork the child starts with none of
them: an engine's worker thread does not survive a fork, and neither do its locks.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv.engine.config import EngineConfig

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    engine: Engine | None = None
    counted: int = 0
    """Holders without a name."""
    named: weakref.WeakSet[object] = field(default_factory=weakref.WeakSet)

    @property
    def held(self) -> bool:
        return self.counted > 0 or len(self.named) > 0


_lock = threading.Lock()
_entries: dict[EngineConfig, _Entry] = {}


def acquire(config: EngineConfig, holder: object | None = None) -> Engine:
    """The engine of `config`, loaded if it is not there yet. Pair with `release`.

    `holder`: who holds it, once and for as long as it lives; without one it is held until released.
    Raises what loading a model raises; then nothing is held.
    """
    with _lock:
        entry = _entries.setdefault(config, _Entry())
        if holder is None:
            entry.counted += 1
        else:
            entry.named.add(holder)
    try:
        # Only those that want this very engine wait while it loads.
        with entry.lock:
            if entry.engine is None:
                from agentkv.engine.engine import Engine

                entry.engine = Engine(config)
            return entry.engine
    except BaseException:
        _let_go(config, entry, holder)
        raise


def release(config: EngineConfig, engine: Engine, holder: object | None = None) -> None:
    """Give back what `acquire` gave to this holder. The last to do so closes the engine."""
    with _lock:
        entry = _entries.get(config)
    if entry is not None and entry.engine is engine:
        _let_go(config, entry, holder)


def _let_go(config: EngineConfig, entry: _Entry, holder: object | None) -> None:
    with _lock:
        if holder is None:
            entry.counted -= 1
        else:
            entry.named.discard(holder)
        if entry.held:
            return
        if _entries.get(config) is entry:
            del _entries[config]
    if entry.engine is not None:
        entry.engine.close()


def close_all() -> None:
    """Close every engine of this process."""
    with _lock:
        entries = list(_entries.values())
        _entries.clear()
    for entry in entries:
        if entry.engine is not None:
            entry.engine.close()


def _forget() -> None:
    """In a forked child: start empty, with a lock that nobody holds."""
    global _lock, _entries
    _lock = threading.Lock()
    _entries = {}


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
