"""What prices a finding: how tokens are counted, what the cache target does, and the traffic.

The cost of a slot is what a call computes again because of it: the tokens behind it that would have
been a hit, times the share of calls in which it changed. Both are stated, never implied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agentkv.lint.target import Target
from agentkv.lint.template import Hole, Level, Piece, Template, Text


@dataclass(frozen=True, slots=True)
class Traffic:
    """Who calls, in round numbers: the shares of consecutive calls in which a level changes.

    A `deploy` value changes with a deployment, a `tenant` with the tenant of the call, and so on to
    `call`, which changes every time. Defaults describe a busy service: many users, conversations of
    some turns, agents with some calls a turn.
    """

    changes: dict[Level, float] = field(
        default_factory=lambda: {
            "build": 0.0,
            "deploy": 0.0005,
            "tenant": 0.30,
            "user": 0.60,
            "session": 0.70,
            "turn": 0.85,
            "call": 1.0,
            "unknown": 0.5,
        }
    )
    history_tokens: int = 2000
    """Tokens of conversation behind a system prompt that has one."""
    document_tokens: int = 1500
    """Tokens of documents that are retrieved or pasted for a question."""
    tool_tokens: int = 800
    """Tokens of a list of tools."""
    text_tokens: int = 300
    """Tokens of a fixed text whose file could not be read (an imported constant, a file)."""
    schema_tokens: int = 200
    """Tokens of format instructions that a parser writes."""
    hour: float = 0.05
    """Share of calls before which an hour has begun."""
    day: float = 0.002
    """Share of calls before which a day has begun."""
    same_documents: float = 0.3
    """Share of calls with the documents of an earlier call and another question."""
    processes: float = 0.3
    """Share of calls whose prefix another process, replica or restart has computed."""

    def share(self, level: Level) -> float:
        return self.changes[level]


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a rule may ask for."""

    count: Callable[[str], int]
    """Tokens of a text."""
    exact: bool
    """Whether `count` is a tokenizer's count or an estimate."""
    target: Target
    traffic: Traffic = field(default_factory=Traffic)
    min_tokens: int = 64
    """Fewer static tokens behind a slot are not worth a finding."""
    stability: dict[str, Level] = field(default_factory=dict)
    """Levels that the project's configuration gives to names; they overrule every guess."""

    def level(self, hole: Hole) -> Level:
        """A hole's level, configuration first."""
        return self.stability.get(hole.name, hole.level)

    def tokens(self, piece: Piece) -> int:
        """Static tokens of a piece: all of a text, what is fixed inside a section. What a loop over
        run-time values repeats is as dynamic as they are."""
        if isinstance(piece, Text):
            return self.count(piece.value)
        fixed = self.level(piece) in ("build", "deploy")
        if "loop" in piece.traits and not fixed:
            return 0
        if fixed and "fixed_text" in piece.traits and not piece.inner:
            return self.traffic.text_tokens
        return sum(self.tokens(p) for p in piece.inner)

    def static_behind(self, template: Template, part: int, piece: int) -> int:
        """Static tokens of the template that stand behind a piece."""
        return sum(self.tokens(p) for i, j, p in template.pieces() if (i, j) > (part, piece))

    def static_before(self, template: Template, part: int, piece: int) -> int:
        return sum(self.tokens(p) for i, j, p in template.pieces() if (i, j) < (part, piece))

    def behind(self, template: Template, part: int, piece: int) -> int:
        """Static tokens behind a piece, and the conversation that follows the template, if one
        does."""
        more = self.traffic.history_tokens if template.followed else 0
        return self.static_behind(template, part, piece) + more
