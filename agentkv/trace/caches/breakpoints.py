"""Caches that hold prefixes which end at breakpoints: Anthropic's, and OpenAI's since GPT-5.6.

A request writes an entry at each of its markers and reads the longest one that ends at a marker or
at one of the blocks in front of it (`lookback`). Each use gives an entry its whole life anew.
Sources and numbers: `targets.toml`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from agentkv.trace.caches.base import Hit, Namespace
from agentkv.trace.caches.target import Target
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered

ENTRIES = 200_000

BEFORE_MESSAGES = ("tool_choice", "thinking")
"""Settings of which another value makes the messages new, and the tools and the system text not."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a block: a digest of all that is in front of it, and how long an entry that is
    written there lives (None: no marker)."""

    key: bytes
    tokens: int
    seconds: float | None


class BreakpointCache:
    """`implicit`: there is a breakpoint at the newest message, markers or not."""

    def __init__(self, target: Target, *, implicit: bool = False) -> None:
        self._target = target
        self._implicit = implicit
        self._entries: OrderedDict[bytes, tuple[float | None, float]] = OrderedDict()
        self._ever: OrderedDict[bytes, None] = OrderedDict()
        self._capped = False

    @property
    def name(self) -> str:
        return f"{self._target.name}, at breakpoints, as of {self._target.as_of}"

    @property
    def capped(self) -> bool:
        return self._capped

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        least = self._target.least(call.model)
        ends = self._ends(call, rendered, namespace)
        marked = [i for i, end in enumerate(ends) if end.seconds is not None]
        marked = marked[-self._target.max_markers :]
        best, known = -1, 0
        for mark in marked:
            for at in range(mark, max(-1, mark - self._target.lookback - 1), -1):
                end = ends[at]
                if end.tokens < least:
                    break
                if end.key in self._ever:
                    known = max(known, end.tokens)
                if self._alive(end.key, call.time):
                    best = max(best, at)
                    break
        for mark in marked:
            end = ends[mark]
            if end.tokens >= least and end.seconds is not None:
                self._write(end.key, call.time, end.seconds)
        cached = min(ends[best].tokens, max(0, rendered.tokens - 1)) if best >= 0 else 0
        return Hit(cached, max(known, cached))

    def _ends(self, call: Call, rendered: Rendered, namespace: Namespace) -> list[_End]:
        hasher = blake2b(repr(namespace).encode("utf-8", "replace"), digest_size=16)
        settings: Any = {k: v for k, v in call.settings.items() if k in BEFORE_MESSAGES}
        out: list[_End] = []
        ids, at = rendered.prompt.token_ids, 0
        life = 60.0 * self._target.ttl_minutes[0]
        in_messages = False
        spans = sorted(rendered.pieces, key=lambda s: (s.end, s.part, s.piece))
        for number, span in enumerate(spans):
            part = call.parts[span.part]
            if not in_messages and part.role not in (None, "system", "developer"):
                in_messages = True
                hasher.update(repr(sorted(settings.items())).encode("utf-8", "replace"))
            hasher.update(ids[at : span.end].tobytes())
            at = span.end
            marker = part.pieces[span.piece].marker
            if marker is None and self._implicit and number == len(spans) - 1:
                marker = 0
            seconds = None if marker is None else float(marker) or life
            out.append(_End(hasher.copy().digest(), span.end, seconds))
        return out

    def _alive(self, key: bytes, now: float | None) -> bool:
        entry = self._entries.get(key)
        if entry is None:
            return False
        until, seconds = entry
        if until is not None and now is not None:
            if now > until:
                del self._entries[key]
                return False
            self._entries[key] = (max(until, now + seconds), seconds)
        self._entries.move_to_end(key)
        return True

    def _write(self, key: bytes, now: float | None, seconds: float) -> None:
        self._entries[key] = (None if now is None else now + seconds, seconds)
        self._entries.move_to_end(key)
        self._ever[key] = None
        self._ever.move_to_end(key)
        while len(self._entries) > ENTRIES:
            self._entries.popitem(last=False)
            self._capped = True
        while len(self._ever) > ENTRIES:
            self._ever.popitem(last=False)
