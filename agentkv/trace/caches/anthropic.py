"""Anthropic's prompt caching: exact prefixes that end at breakpoints, found by looking back.

A request writes one entry at each of its markers (four at most) and reads the longest entry that
ends at a marker or up to 20 content blocks before one. Entries live five minutes or an hour after
their last use. Prompts below the model's minimum are not cached. Source: see `targets.toml`.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from agentkv.trace.caches.base import Hit, Namespace
from agentkv.trace.caches.target import target
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered

ENTRIES = 500_000


class AnthropicCache:
    """Entries by digest of the whole prefix. Calls without times never expire."""

    capped = False

    def __init__(self) -> None:
        self._target = target("anthropic")
        self.name = f"anthropic, breakpoints, as of {self._target.as_of}"
        self._entries: OrderedDict[tuple[Namespace, bytes], float | None] = OrderedDict()
        self._ever: OrderedDict[tuple[Namespace, bytes], None] = OrderedDict()

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        least = self._target.least(call.model)
        ends = self._ends(call, rendered, namespace)
        marked = [i for i, (_, _, seconds) in enumerate(ends) if seconds is not None]
        marked = marked[-self._target.max_markers :]
        cached = known = 0
        for mark in marked:
            for at in range(mark, max(-1, mark - self._target.lookback - 1), -1):
                key, tokens, _ = ends[at]
                if tokens < least:
                    break
                if key in self._ever:
                    known = max(known, tokens)
                if self._alive(key, call.time):
                    cached = max(cached, tokens)
                    break
        for mark in marked:
            key, tokens, seconds = ends[mark]
            if tokens >= least and seconds is not None:
                self._write(key, None if call.time is None else call.time + seconds)
        cached = min(cached, max(0, rendered.tokens - 1))
        return Hit(cached, max(known, cached))

    def _ends(
        self, call: Call, rendered: Rendered, namespace: Namespace
    ) -> list[tuple[tuple[Namespace, bytes], int, float | None]]:
        """At the end of each block: key of the prefix, its tokens, seconds to live if marked."""
        out = []
        hasher = blake2b(digest_size=16)
        ids, at = rendered.prompt.token_ids, 0
        default = 60.0 * self._target.ttl_minutes[0]
        for span in sorted(rendered.pieces, key=lambda s: s.end):
            piece = call.parts[span.part].pieces[span.piece]
            hasher.update(ids[at : span.end].tobytes())
            at = span.end
            seconds = None if piece.marker is None else float(piece.marker or default)
            out.append(((namespace, hasher.copy().digest()), span.end, seconds))
        return out

    def _alive(self, key: tuple[Namespace, bytes], now: float | None) -> bool:
        if key not in self._entries:
            return False
        until = self._entries[key]
        if until is not None and now is not None and now > until:
            del self._entries[key]
            return False
        self._entries.move_to_end(key)
        return True

    def _write(self, key: tuple[Namespace, bytes], until: float | None) -> None:
        self._entries[key] = until
        self._entries.move_to_end(key)
        self._ever[key] = None
        while len(self._entries) > ENTRIES:
            self._entries.popitem(last=False)
        while len(self._ever) > ENTRIES:
            self._ever.popitem(last=False)
