"""A place in an application that makes calls: what its prompts have in common.

One session may hold calls of several agents: a planner, its workers, a summary on the side. What
changes between two of *them* is no drift, and the tools of one are no business of the other. So
calls are told apart by their system text: names of marked units, and lines with digits left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentkv.layout.churn import MAX_LINES, Churn, Presence
from agentkv.layout.order import CHANCES
from agentkv.prompt.prompt import SYSTEM_ROLES, Prompt
from agentkv.prompt.segment import Segment, stability_rank
from agentkv.prompt.tools import Tool

ALIKE = 0.4
"""Share of common features from which two system texts are taken for the same agent's."""

MAX_KEPT = 512
"""Tools kept for a site; one that shows more keeps only those it gave last."""

_DIGITS = re.compile(r"\d+")
_LASTING = stability_rank("session")


@dataclass(frozen=True, slots=True)
class Look:
    """What is taken note of in a prompt."""

    system: tuple[Segment, ...]
    features: frozenset[int]
    names: tuple[str, ...]
    talk: str | None
    tools: tuple[Tool, ...]
    documents: tuple[tuple[str, str], ...]

    @classmethod
    def at(cls, prompt: Prompt, talk: str | None) -> Look:
        """`talk` stands for the conversation (see `conversation_key`)."""
        system = tuple(
            unit
            for message in _leading(prompt)
            for unit in message
            if unit.part is None and unit.content
        )
        documents = tuple(
            (d.id, d.content_hash)
            for d in prompt.documents
            if stability_rank(d.stability) <= _LASTING
        )
        names = tuple(u.name for u in system if u.declared)
        return cls(system, _features(system), names, talk, prompt.read_tools, documents)


@dataclass(slots=True)
class Site:
    """What the calls of one place have shown."""

    features: frozenset[int]
    names: tuple[str, ...]
    talk: str | None
    units: dict[str, Churn] = field(default_factory=dict)
    tools: dict[str, Tool] = field(default_factory=dict)
    toolset: Presence = field(default_factory=Presence)
    documents: Presence = field(default_factory=Presence)

    def likeness(self, look: Look) -> float:
        """0 to 1: how much the system text has in common with this site's."""
        either = len(self.features | look.features)
        if either:
            common = len(self.features & look.features) / either
            if common >= ALIKE:
                return common
            # All of a marked text may change: then the conversation and the marks tell.
            same = look.names and look.names == self.names and look.talk == self.talk
            return ALIKE if same and look.talk else 0.0
        return 1.0

    def see(self, look: Look) -> list[tuple[Tool, Tool]]:
        """Take note of a call. Returns tools that were defined otherwise before, old and new."""
        self.features, self.names, self.talk = look.features, look.names, look.talk
        for unit in look.system:
            churn = self.units.get(unit.name)
            if churn is None:
                if len(self.units) >= MAX_LINES:
                    continue
                churn = self.units[unit.name] = Churn()
            lines = unit.content.splitlines()
            churn.see(hash(unit.content), lines, CHANCES[unit.stability])
        self.documents.see(look.documents)
        self.toolset.see([t.name for t in look.tools])
        drifted = [
            (old, tool)
            for tool in look.tools
            if (old := self.tools.get(tool.name)) is not None and old.text != tool.text
        ]
        given = {t.name: t for t in look.tools}
        kept = {**self.tools, **given}
        self.tools = kept if len(kept) <= MAX_KEPT else given
        return drifted


@dataclass(frozen=True, slots=True)
class Seen:
    """What a session knows when a call is laid out, this call included."""

    units: Mapping[str, Churn] = field(default_factory=dict)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    toolset: Churn = field(default_factory=Churn)
    documents: Presence = field(default_factory=Presence)
    warnings: tuple[str, ...] = ()


def best(sites: Iterable[Site], look: Look) -> Site | None:
    """The site that a call belongs to, the latest among equals; None if it is a new one."""
    found, score = None, 0.0
    for site in sites:
        likeness = site.likeness(look)
        if likeness >= ALIKE and likeness >= score:
            found, score = site, likeness
    return found


def _leading(prompt: Prompt) -> Iterable[Sequence[Segment]]:
    for message in prompt.messages:
        if message.role not in SYSTEM_ROLES:
            return
        yield message.units


def _features(system: Sequence[Segment]) -> frozenset[int]:
    out: set[int] = set()
    for unit in system:
        if unit.declared and unit.name != unit.kind:
            out.add(hash(("name", unit.name)))
        for line in unit.content.splitlines()[:MAX_LINES]:
            if line.strip():
                out.add(hash(_DIGITS.sub("0", line)))
    return frozenset(out)
