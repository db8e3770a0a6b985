"""The result of a layout: what goes where, what was moved, and what was not, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from agentkv.prompt.canonical import tool_name
from agentkv.prompt.segment import Segment

Level = Literal["off", "canonical", "static_first", "learn"]
LEVELS: tuple[str, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Move:
    """A unit that stands elsewhere than its author put it.

    `to` is `tail` (a labelled block at the end), `behind_static` (further back in its own system
    message), `stable_order` (tools, documents: the order of the session), `kept` (tools of the
    session that this call did not give), or `dropped` (a line that `drop_lines` names).
    """

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A unit that would be better elsewhere, and the sentence that says why it was left."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What level `learn` would move, if its name were in `allow`: it changed from call to call.

    `name` is the unit to allow, `to` where it would go, `saves` the tokens that a call would then
    read from memory, on average (estimated at four characters a token). `changed` of `calls` calls
    of the session had another text there.
    """

    name: str
    to: str
    saves: int
    changed: int
    calls: int

    def __str__(self) -> str:
        return (
            f"{self.name!r} changed in {self.changed} of {self.calls} calls: at the {self.to} it "
            f"would save about {self.saves:,} tokens a call (allow={self.name!r})."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A prompt in the order in which it is sent.

    `order` holds every unit of the input once. `messages` and `tools` are what goes on the wire.
    `trails` says that the last message is a block of the layout's own, behind a tool result.

    `allowed` holds the names of the tools that the caller gave now, where `tools` has more of them
    (`keep_tools`): only these may be called, which the decoder has to see to. None: all of `tools`.
    `proposals` is what was learned and not allowed to move. `warnings` are sentences about input
    that defeats reuse: a tool whose definition drifts, a text marked static that changes.
    """

    level: str
    order: tuple[Segment, ...]
    moves: tuple[Move, ...] = ()
    refused: tuple[Refusal, ...] = ()
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    trails: bool = False
    allowed: tuple[str, ...] | None = None
    proposals: tuple[Proposal, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tail(self) -> tuple[str, ...]:
        """Names of the units that were moved behind the history."""
        return tuple(m.name for m in self.moves if m.to == "tail")

    @property
    def masked(self) -> tuple[str, ...]:
        """Names of tools that stand in the prompt and may not be called now."""
        if self.allowed is None:
            return ()
        return tuple(n for n in map(tool_name, self.tools) if n not in self.allowed)

    def to_dict(self) -> dict[str, Any]:
        """The `layout` part of a report. No text of the prompt is in it, but for the first words
        of a changed line in a warning about a text that was marked static."""
        out: dict[str, Any] = {
            "level": self.level,
            "moved": [[m.name, m.to] for m in self.moves],
            "refused": [[r.name, r.reason] for r in self.refused],
        }
        if self.masked:
            out["masked"] = list(self.masked)
        if self.proposals:
            out["proposed"] = [[p.name, p.to, p.saves, p.changed, p.calls] for p in self.proposals]
        if self.warnings:
            out["warnings"] = list(self.warnings)
        return out
