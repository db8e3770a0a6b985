"""What is known of a value: how often it changes, what is in it, and where that was seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

from agentkv.lint.template import Level, Trait

# `unknown` stands between what no caller changes and what is known to change.
_RANK: dict[str, int] = {
    name: i
    for i, name in enumerate(
        ("build", "deploy", "unknown", "tenant", "user", "session", "turn", "call")
    )
}


@dataclass(frozen=True, slots=True)
class Where:
    """Characters `[start, end)` of a module's text. `module` is its path as text."""

    module: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Facts:
    """`known` is False where the level was only guessed from a name. `reads` are local names."""

    level: Level = "unknown"
    traits: frozenset[Trait] = frozenset()
    why: str = ""
    known: bool = False
    reads: tuple[str, ...] = ()
    made: Where | None = None

    def plus(self, *traits: str) -> Facts:
        """The same with more traits."""
        return replace(self, traits=self.traits | cast("frozenset[Trait]", frozenset(traits)))

    def minus(self, *traits: str) -> Facts:
        return replace(self, traits=self.traits - frozenset(traits))

    def at(self, level: Level, why: str | None = None) -> Facts:
        return replace(self, level=level, why=self.why if why is None else why)

    def by(self, why: str) -> Facts:
        """With a reason in front of what is known."""
        return replace(self, why=f"{why}: {self.why}" if self.why else why)

    def reading(self, *names: str) -> Facts:
        return replace(self, reads=tuple(dict.fromkeys((*self.reads, *names))))


FIXED = Facts("build", why="literal", known=True)
UNKNOWN = Facts()


def fact(level: Level, why: str, *traits: str) -> Facts:
    """Facts that the code shows."""
    return Facts(level, cast("frozenset[Trait]", frozenset(traits)), why, True)


def rank(level: str) -> int:
    return _RANK[level]


def join(many: Iterable[Facts]) -> Facts:
    """Facts of a text made of several: the fastest level, all traits, the reason of the fastest."""
    best, traits, reads = None, frozenset[Trait](), dict[str, None]()
    for one in many:
        traits |= one.traits
        reads.update(dict.fromkeys(one.reads))
        if best is None or (_RANK[one.level], one.known) > (_RANK[best.level], best.known):
            best = one
    if best is None:
        return FIXED
    return replace(best, traits=traits, reads=tuple(reads))
