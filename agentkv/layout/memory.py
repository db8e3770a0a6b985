"""What a session has shown: the order in which its tools and documents were first seen.

A tool or document that was in an earlier prompt of the session keeps its place, and a new one is
appended, so that the block only ever grows at its end. Bounded (least recently used sessions go
first) and safe from many threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from agentkv.prompt.prompt import Prompt
from agentkv.prompt.segment import content_hash

MAX_ITEMS = 4096
"""Names remembered for a session; a session that shows more starts afresh."""


class Memory:
    """First-seen orders of at most `sessions` sessions."""

    def __init__(self, sessions: int = 1024) -> None:
        if sessions < 1:
            raise ValueError(f"sessions must be at least 1, got {sessions}.")
        self._limit = sessions
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, str], dict[str, int]] = OrderedDict()

    def tools(self, session: str, names: Sequence[str], *, keep: bool = True) -> list[int]:
        """Indices of `names` in the session's order; unknown ones by name, behind the known."""
        return self._order("tools", session, names, sorted, keep)

    def documents(self, session: str, ids: Sequence[str], *, keep: bool = True) -> list[int]:
        """Indices of `ids` in the session's order; unknown ones as given, behind the known."""
        return self._order("documents", session, ids, list, keep)

    def forget(self, session: str) -> None:
        """Drop what is known of a session."""
        with self._lock:
            for kind in ("tools", "documents"):
                self._seen.pop((kind, session), None)

    def __len__(self) -> int:
        with self._lock:
            return len({session for _, session in self._seen})

    def _order(
        self,
        kind: str,
        session: str,
        names: Sequence[str],
        arrange: Callable[[Sequence[str]], list[str]],
        keep: bool,
    ) -> list[int]:
        with self._lock:
            key = (kind, session)
            places = self._seen.get(key, {})
            fresh = arrange([n for n in dict.fromkeys(names) if n not in places])
            if len(places) + len(fresh) > MAX_ITEMS:
                places, fresh = {}, arrange(list(dict.fromkeys(names)))
            known = {**places, **{n: len(places) + i for i, n in enumerate(fresh)}}
            if keep and names:
                self._seen[key] = known
                self._seen.move_to_end(key)
                while len(self._seen) > 2 * self._limit:
                    self._seen.popitem(last=False)
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
