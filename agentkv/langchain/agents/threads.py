"""What the middleware has seen of each thread: its tools, its system prompts, what was sent last.

Least recently used threads go first. Every method is called under the planner's lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import SystemMessage

from agentkv.langchain.agents.lines import Core, Piece

MAX_PROMPTS = 4
"""System prompts of one thread that are told apart: an agent that switches between modes."""


@dataclass(slots=True)
class Thread:
    """One conversation. `tools` keeps every tool by name in first-seen order."""

    tools: dict[str, Any] = field(default_factory=dict)
    cores: list[Core] = field(default_factory=list)
    sent: tuple[SystemMessage | None, list[Any]] | None = None


class Threads:
    """At most `limit` threads, and the prompts that all of them taught."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"threads must be at least 1, got {limit}.")
        self._limit = limit
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._cores: list[Core] = []

    def __len__(self) -> int:
        return len(self._threads)

    def get(self, key: str) -> Thread:
        thread = self._threads.setdefault(key, Thread())
        self._threads.move_to_end(key)
        while len(self._threads) > self._limit:
            self._threads.popitem(last=False)
        return thread

    def peek(self, key: str) -> Thread | None:
        return self._threads.get(key)

    def pieces(self, thread: Thread, texts: Sequence[str]) -> list[Piece]:
        """A prompt in what stays and what changes, by what this thread and others have shown."""
        core = _fitting(thread.cores, texts)
        shared = _fitting(self._cores, texts)
        if core is None:
            core = shared.copy() if shared is not None else Core(texts)
            thread.cores = [core, *thread.cores[: MAX_PROMPTS - 1]]
        if shared is None:
            shared = Core(texts)
            self._cores = [shared, *self._cores[: MAX_PROMPTS - 1]]
        shared.split(texts)
        return core.split(texts)


def _fitting(cores: list[Core], texts: Sequence[str]) -> Core | None:
    return next((core for core in cores if core.fits(texts)), None)
