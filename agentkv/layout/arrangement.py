"""The result of a layout: what goes where, what was moved, and what was not, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from agentkv.prompt.segment import Segment

Level = Literal["off", "canonical", "static_first"]
LEVELS: tuple[str, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Move:
    """A unit that stands elsewhere than its author put it.

    `to` is `tail` (a labelled block at the end), `behind_static` (the end of its own system
    message), or `stable_order` (tools, documents: the order of the session).
    """

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A unit that would be better elsewhere, and the sentence that says why it was left."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A prompt in the order in which it is sent.

    `order` holds every unit of the input once. `messages` and `tools` are what goes on the wire.
    `trails` says that the last message is a block of the layout's own, behind a tool result.
    """

    level: str
    order: tuple[Segment, ...]
    moves: tuple[Move, ...] = ()
    refused: tuple[Refusal, ...] = ()
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    trails: bool = False

    @property
    def tail(self) -> tuple[str, ...]:
        """Names of the units that were moved behind the history."""
        return tuple(m.name for m in self.moves if m.to == "tail")

    def to_dict(self) -> dict[str, Any]:
        """The `layout` part of a report: no text of the prompt in it."""
        return {
            "level": self.level,
            "moved": [[m.name, m.to] for m in self.moves],
            "refused": [[r.name, r.reason] for r in self.refused],
        }
