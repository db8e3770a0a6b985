"""What a session has shown: orders first seen, tools kept, and what changes from call to call.

A tool or document that was in an earlier prompt of the session keeps its place, and a new one is
appended, so that the block only ever grows at its end. Of texts, only digests are kept (and the
first words of a line that has changed). Bounded (least recently used sessions go first) and safe
from many threads.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkv.layout.churn import Presence
from agentkv.layout.drift import only_order, static_drift, tool_drift
from agentkv.layout.site import Look, Seen, Site, best
from agentkv.prompt.prompt import Prompt
from agentkv.prompt.segment import content_hash
from agentkv.prompt.tools import Tool

MAX_ITEMS = 4096
"""Names remembered for a session; a session that shows more starts afresh."""

MAX_SITES = 8
"""Agents told apart within a session."""


@dataclass(slots=True)
class _Session:
    orders: dict[str, dict[str, int]] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)


class Memory:
    """What at most `sessions` sessions have shown."""

    def __init__(self, sessions: int = 1024) -> None:
        if sessions < 1:
            raise ValueError(f"sessions must be at least 1, got {sessions}.")
        self._limit = sessions
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._defined: OrderedDict[str, Tool] = OrderedDict()
        self._warned: OrderedDict[str, None] = OrderedDict()

    def tools(
        self, session: str, names: Sequence[str], *, keep: bool = True, by_name: bool = True
    ) -> list[int]:
        """Indices of `names` in the session's order; unknown ones by name, behind the known
        (with `by_name=False` as given)."""
        return self._order("tools", session, names, by_name, keep)

    def documents(self, session: str, ids: Sequence[str], *, keep: bool = True) -> list[int]:
        """Indices of `ids` in the session's order; unknown ones as given, behind the known."""
        return self._order("documents", session, ids, False, keep)

    def visit(self, session: str, prompt: Prompt, *, keep: bool = True) -> Seen:
        """Take note of a call, and return what is known with it. `keep=False` only looks.

        A tool whose definition drifts is warned of once per name.
        """
        look = Look.at(prompt, conversation_key(prompt))
        with self._lock:
            known = self._sessions.get(session)
            sites = known.sites if known is not None else []
            site = best(sites, look)
            if site is None:
                site = Site(look.features, look.names, look.talk)
            elif not keep:
                site = copy.deepcopy(site)
            drifted = site.see(look)
            warnings = self._drift(drifted, look.tools, keep)
            warnings.extend(static_drift(look.system, site.units))
            if keep:
                record = self._session(session)
                record.sites = [*(s for s in record.sites if s is not site), site][-MAX_SITES:]
            return Seen(
                units={
                    u.name: copy.copy(site.units[u.name])
                    for u in look.system
                    if u.name in site.units
                },
                tools=dict(site.tools),
                toolset=copy.copy(site.toolset.churn),
                documents=Presence(copy.copy(site.documents.churn), site.documents.always),
                warnings=tuple(warnings),
            )

    def forget(self, session: str) -> None:
        """Drop what is known of a session."""
        with self._lock:
            self._sessions.pop(session, None)

    def __len__(self) -> int:
        with self._lock:
            return len(self._sessions)

    def _session(self, session: str) -> _Session:
        """The record of a session, as the latest used; the lock is held."""
        record = self._sessions.setdefault(session, _Session())
        self._sessions.move_to_end(session)
        while len(self._sessions) > self._limit:
            self._sessions.popitem(last=False)
        return record

    def _drift(
        self, drifted: Sequence[tuple[Tool, Tool]], tools: Sequence[Tool], keep: bool
    ) -> list[str]:
        """Warnings for tools with other bytes than before in this session, or in the process.

        Two agents may well have a tool of one name each; so across sessions only a mere change of
        order counts, which nobody means.
        """
        pairs = [(old, new, "earlier in this session") for old, new in drifted]
        inside = {new.name for _, new in drifted}
        for tool in tools:
            old = self._defined.get(tool.name)
            if old is None or old.text == tool.text or tool.name in inside:
                continue
            if tool.name not in self._warned and only_order(old, tool):
                pairs.append((old, tool, "in another session of this process"))
        out = [tool_drift(o, n, where=w) for o, n, w in pairs if n.name not in self._warned]
        if keep:
            for tool in tools:
                self._defined[tool.name] = tool
                self._defined.move_to_end(tool.name)
            for _, tool, _ in pairs:
                self._warned[tool.name] = None
            for bounded in (self._defined, self._warned):
                while len(bounded) > MAX_ITEMS:
                    bounded.popitem(last=False)
        return out

    def _order(
        self, kind: str, session: str, names: Sequence[str], by_name: bool, keep: bool
    ) -> list[int]:
        with self._lock:
            record = self._sessions.get(session)
            places = record.orders.get(kind, {}) if record is not None else {}
            fresh = [n for n in dict.fromkeys(names) if n not in places]
            if len(places) + len(fresh) > MAX_ITEMS:
                places, fresh = {}, list(dict.fromkeys(names))
            if by_name:
                fresh.sort()
            known = places
            if fresh:
                known = {**places, **{n: len(places) + i for i, n in enumerate(fresh)}}
            if keep and names:
                self._session(session).orders[kind] = known
        return sorted(range(len(names)), key=lambda i: known[names[i]])


def conversation_key(prompt: Prompt) -> str | None:
    """A stand-in for a session id: a hash of the conversation's first user message.

    It is the one text that stays when a framework sends a growing history, and two conversations
    that share it lose nothing by sharing an order. None without a user message.
    """
    for message in prompt.messages:
        if message.role == "user":
            return "first:" + content_hash("".join(u.content for u in message.units))
    return None
