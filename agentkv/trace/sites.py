"""Call sites: which place in a program a call probably comes from.

Two calls are of one site when their instructions have most words in common; where these are short
or missing, so must the names of their tools, and without either the first message of the user. So a
clock, a name or an id in the instructions makes no other site, nor does a tool that comes or goes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from agentkv.trace.call import Call, Part, digest
from agentkv.trace.words import alike, contained, words_of

SITES = 64
SEEN = 20_000
LONG_ENOUGH = 8
"""Words that instructions must have to speak for a site alone."""
SAME_WORDS = 0.5
SAME_PART = 0.75
"""Of the shorter text's words, where another one has grown."""
SAME_TOOLS = 0.3


@dataclass(slots=True)
class _Site:
    name: str
    tools: frozenset[str]
    words: frozenset[int]


class Sites:
    """Feed it calls; bounded: the least recent sites are forgotten."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, _Site] = OrderedDict()
        self._seen: OrderedDict[tuple[str, ...], str] = OrderedDict()

    def of(self, call: Call) -> str:
        """The name of a call's site: 16 characters, of its first call."""
        setting = [p for p in call.parts if p.kind == "tools" or p.role in ("system", "developer")]
        if not setting:
            setting = [p for p in call.parts if p.role == "user"][:1]
        seen = tuple(p.key for p in setting[:3])
        name = self._seen.get(seen)
        if name is not None and name in self._sites:
            self._seen.move_to_end(seen)
            self._sites.move_to_end(name)
            return name
        name = self._place(setting)
        self._seen[seen] = name
        if len(self._seen) > SEEN:
            self._seen.popitem(last=False)
        return name

    def _place(self, setting: list[Part]) -> str:
        tools = frozenset(
            p.name or p.key for part in setting if part.kind == "tools" for p in part.pieces
        )
        said = next((p for p in setting if p.kind != "tools"), None)
        words = words_of(p.text for p in said.pieces) if said is not None else frozenset[int]()
        best, most = None, 0.0
        for site in reversed(self._sites.values()):
            told = alike(words, site.words)
            if told < SAME_WORDS and contained(words, site.words) < SAME_PART:
                continue
            if min(len(words), len(site.words)) < LONG_ENOUGH:
                tooled = alike(tools, site.tools)
                if told < SAME_WORDS or tooled < SAME_TOOLS:
                    continue
                told = (told + tooled) / 2
            if told > most:
                best, most = site, told
                if most > 0.9:
                    break
        if best is None:
            name = digest("\0".join([*sorted(tools), *(p.key for p in setting)]))
            best = self._sites[name] = _Site(name, tools, words)
            if len(self._sites) > SITES:
                self._sites.popitem(last=False)
        self._sites.move_to_end(best.name)
        return best.name
