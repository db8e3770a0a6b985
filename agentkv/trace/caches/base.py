"""What every cache model answers: how much of a call's prompt it would have served."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from agentkv.trace.call import Call
from agentkv.trace.render import Rendered

Namespace = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """In tokens. `cached`: served. `known`: of the prompt's beginning, what this cache has or once
    had: `known - cached` was evicted or expired (or lies within its granularity)."""

    cached: int
    known: int


class CacheModel(Protocol):
    """Feed it calls in the order of their arrival."""

    @property
    def name(self) -> str:
        """In words, with its size: `agentkv, unlimited`."""
        ...

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        """What is served to a call; its prompt and answer are in the cache afterwards."""
        ...

    @property
    def capped(self) -> bool:
        """Whether an `unlimited` cache had to forget something to stay within memory."""
        ...


def namespace_of(call: Call) -> Namespace:
    """What must be equal for two calls to share anything: the model, and the salt."""
    return (("model", call.model), ("salt", call.salt))
