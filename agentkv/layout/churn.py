"""How often a text of the prompt was another one than before, kept as digests.

Hashes of the process, not of the content alone: nothing here is stored or sent anywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

RECENT = 8
MAX_LINES = 512
EXCERPT = 60
OFTEN = 0.5
"""Share of calls from which a text is taken for one that changes by the call."""


@dataclass(slots=True)
class Churn:
    """One unit of a session's prompts: `changed` of `calls` calls had a text not seen lately.

    A text that comes back counts as unchanged: the tree of prefixes still holds it. `stable` are
    the lines that every text so far had (None: too many to follow). `was` is the start of the line
    that changed last, kept only once the unit has changed. `leaves` says that it changes often
    enough to stand at the tail, and stays true, so that nothing moves back and forth. `chance` is
    the chance of a change at the next call, in steps of four for the same reason.
    """

    calls: int = 0
    changed: int = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))
    stable: frozenset[int] | None = None
    line: int = 0
    was: str = ""
    now: str = ""
    fresh: bool = False
    leaves: bool = False
    chance: float = 0.0

    def see(self, digest: int, lines: Sequence[str] | None = None, prior: float = 0.0) -> None:
        """Count a call whose text has this digest, and these lines where they are followed.

        `prior` is the chance of a change that the unit's level gives.
        """
        self.fresh = self.calls > 0 and digest not in self.recent
        if self.fresh:
            self.changed += 1
        elif digest in self.recent:
            self.recent.remove(digest)
        self.recent.append(digest)
        self.calls += 1
        self.leaves = self.leaves or (self.changed > 0 and self.share >= OFTEN)
        # What was measured, on top of two calls' worth of what the level says.
        estimate = min((self.changed + 2 * prior) / (self.calls + 1), 1.0)
        if not self.chance / 4 <= estimate <= self.chance * 4:
            self.chance = estimate
        if lines is None or len(lines) > MAX_LINES:
            self.stable = None
            return
        hashes = frozenset(map(hash, lines))
        if self.calls == 1:
            self.stable = hashes
            return
        if self.fresh:
            known = self.stable or frozenset()
            self.line = next((i for i, x in enumerate(lines) if hash(x) not in known), len(lines))
            self.was = self.now
            self.now = lines[self.line].strip()[:EXCERPT] if self.line < len(lines) else ""
        if self.stable is not None:
            self.stable &= hashes

    @property
    def share(self) -> float:
        """Changes per call, of the calls that could show one."""
        return self.changed / (self.calls - 1) if self.calls > 1 else 0.0


@dataclass(slots=True)
class Presence:
    """Things that come and go (documents, tools): which of them every call had."""

    churn: Churn = field(default_factory=Churn)
    always: frozenset[Hashable] | None = None

    def see(self, items: Sequence[Hashable]) -> None:
        now = frozenset(items)
        self.churn.see(hash(now))
        self.always = now if self.always is None else self.always & now
