"""Prefix caches on the tree that serves requests here: those of engines, and those of providers
that cache whatever begins alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

import numpy as np

from agentkv.engine.kv import eviction
from agentkv.engine.kv.tree import Node
from agentkv.engine.types import IntArray
from agentkv.trace.caches.base import Hit, Namespace
from agentkv.trace.caches.tree import AgingTree
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered

UNLIMITED = 16_000_000
"""Ids that a cache without a size holds at most, which is 80 MB. Beyond, what is least recently
used goes, and the cache says that it is `capped`."""


def lfu(node: Node) -> float:
    """Least often used first, and of those the least recently used."""
    return node.hits + node.last_use * 2.0**-40


POLICIES: dict[str, eviction.EvictionKey] = {**eviction.POLICIES, "lfu": lfu}


_BY_ROLE = ("role", "cost")


class RadixCache:
    """A radix tree over pages of `page_size` tokens.

    `size`: tokens it holds; None: unlimited. `least(model)`: shorter matches serve nothing. `step`:
    what is served beyond that minimum comes in steps of so many tokens. `seconds`: what was not
    used for so long is gone, where calls have times. `held_ids`: what an unlimited cache holds at
    most.
    """

    def __init__(
        self,
        name: str,
        *,
        page_size: int = 1,
        size: int | None = None,
        policy: str = "hot",
        least: Callable[[str], int] | None = None,
        step: int = 1,
        seconds: float | None = None,
        held_ids: int = UNLIMITED,
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"no policy is called {policy!r}; there are: {', '.join(POLICIES)}.")
        if seconds is not None and policy != "lru":
            raise ValueError("a time to live needs the policy lru.")
        self._title = name
        self.size = size
        self.policy = policy
        self._least = least
        self._step = step
        self._seconds = seconds
        self._page = page_size
        self._most = held_ids
        self._trees: dict[int, AgingTree] = {}
        self._ages: dict[int, _Ages] = {}
        self._capped = False
        self._gone = 0

    @property
    def name(self) -> str:
        return f"{self._title}, " + ("unlimited" if self.size is None else f"{self.size:,} tokens")

    @property
    def capped(self) -> bool:
        return self._capped

    @property
    def ideal(self) -> bool:
        """Whether it serves every token that any cache could."""
        return (
            self.size is None
            and self._page == self._step == 1
            and self._seconds is None
            and self._least is None
        )

    def release(self) -> None:
        """Give its memory back; what was counted stays. For when the replay is over."""
        self._gone = self.evicted
        self._trees.clear()
        self._ages.clear()

    @property
    def held(self) -> int:
        """Tokens in the cache now."""
        return sum(tree.held * per for per, tree in self._trees.items())

    @property
    def evicted(self) -> int:
        """Tokens that were evicted, or expired, so far."""
        now = sum(tree.evicted_tokens_total * per for per, tree in self._trees.items())
        return self._gone + now

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        per = rendered.per_id
        tree = self._tree(per)
        if self._seconds is not None and call.time is not None:
            tree.expire(self._ages[per].oldest(call.time - self._seconds))
        ids = rendered.prompt.token_ids
        # At least one token is computed: its output is the next token. Hash traces are counted in
        # blocks, all of which can be found.
        least_new = 1 if per == 1 else 0
        match = tree.match(namespace, ids, len(ids) - least_new)
        most = max(0, rendered.tokens - least_new)
        known = min(match.known * per, most)
        cached = self._served(min(match.length * per, most), call.model)
        self._keep(tree, namespace, rendered)
        if self._seconds is not None and call.time is not None:
            self._ages[per].note(call.time, tree.clock)
        return Hit(cached, max(known, cached))

    def _served(self, found: int, model: str) -> int:
        least = self._least(model) if self._least is not None else 1
        if found < least:
            return 0
        return found if self._step == 1 else least + (found - least) // self._step * self._step

    def _keep(self, tree: AgingTree, namespace: Namespace, rendered: Rendered) -> None:
        """Put prompt and answer into the tree; a prompt that is longer than the cache stays out."""
        full = rendered.full
        # The last token of an answer was sampled, and never computed.
        whole = len(full) - 1 if len(rendered.answer_ids) else len(full)
        whole -= whole % tree.page_size
        ids = full[:whole]
        size = self._most if self.size is None else self.size // rendered.per_id
        match = tree.match(namespace, ids)
        if not whole or (whole > size and not match.length):
            return
        node = tree.lock(namespace, match)
        missing = whole - match.length
        if missing and whole <= size:
            free = size - tree.held
            if missing > free:
                tree.evict(missing - free)
                self._capped |= self.size is None
            # Nobody reads slots here: a byte each is enough to count them.
            tree.insert(namespace, ids, cast(IntArray, np.zeros(whole, dtype=np.int8)))
            if self.policy in _BY_ROLE:
                tree.mark(namespace, ids, eviction.marks_of(rendered.prompt.spans))
        tree.unlock(node)

    def _tree(self, per_id: int) -> AgingTree:
        found = self._trees.get(per_id)
        if found is None:
            page = self._page if per_id == 1 else 1
            found = self._trees[per_id] = AgingTree(
                page, eviction=POLICIES[self.policy], tombstone_tokens=self._most // 8
            )
            self._ages[per_id] = _Ages()
        return found


class _Ages:
    """Which reading of a tree's clock was reached at which time. Times that run backwards (several
    logs, one after the other) count as the latest one before them."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()
        self._oldest = 0

    def note(self, time: float, clock: int) -> None:
        last = self._readings[-1][0] if self._readings else time
        self._readings.append((max(time, last), clock))

    def oldest(self, time: float) -> int:
        """The clock at the last call before `time`: whatever was used then and not since is old."""
        while self._readings and self._readings[0][0] < time:
            self._oldest = self._readings.popleft()[1]
        return self._oldest
