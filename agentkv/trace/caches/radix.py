"""Prefix caches of engines, on the tree that serves requests here: agentkv, SGLang, vLLM, and
providers that cache what begins alike."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from agentkv.engine.kv.tree import EvictionKey, RadixTree, hot_lru, lru
from agentkv.trace.caches.base import Hit, Namespace
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered

UNLIMITED = 24_000_000
"""Ids that a cache without a size holds at most: 200 MB. What is least recently used goes."""

POLICIES: dict[str, EvictionKey] = {"lru": lru, "hot_lru": hot_lru}


class RadixCache:
    """A radix tree over pages of `page_size` tokens.

    `size`: tokens it holds; None: unlimited. `minimum`: shorter matches serve nothing. `step`: a
    served length is a multiple of it above the minimum. `seconds`: what was not used for so long
    is gone (only where calls have times).
    """

    def __init__(
        self,
        name: str,
        *,
        page_size: int = 1,
        size: int | None = None,
        policy: str = "hot_lru",
        minimum: int = 0,
        step: int = 1,
        seconds: float | None = None,
        limit_last: bool = True,
    ) -> None:
        self.name = f"{name}, " + ("unlimited" if size is None else f"{size:,} tokens")
        self.size = size
        self.minimum = minimum
        self.step = step
        self.seconds = seconds
        self._page = page_size
        self._limit_last = limit_last
        self._policy = POLICIES[policy]
        self._trees: dict[int, RadixTree] = {}
        self._seen: OrderedDict[Namespace, float] = OrderedDict()
        self._capped = False

    @property
    def capped(self) -> bool:
        return self._capped

    @property
    def held(self) -> int:
        """Tokens in the cache now."""
        return sum((t.evictable_tokens + t.locked_tokens) * per for per, t in self._trees.items())

    @property
    def evicted(self) -> int:
        """Tokens that were evicted so far."""
        return sum(t.evicted_tokens_total * per for per, t in self._trees.items())

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        tree = self._tree(rendered.per_id)
        per = rendered.per_id
        ids = rendered.prompt.token_ids
        self._expire(call, tree, namespace)
        # At least one token is computed: its output is the next token. A block of a hash trace is
        # more than one token, so that the last one may be served.
        limit = len(ids) - 1 if self._limit_last and per == 1 else len(ids)
        match = tree.match(namespace, ids, limit)
        self._keep(tree, namespace, rendered, match.length)
        found = min(match.length * per, rendered.tokens)
        known = min(match.known * per, rendered.tokens)
        cached = found
        if cached < max(self.minimum, 1):
            cached = 0
        elif self.step > 1:
            cached = self.minimum + (cached - self.minimum) // self.step * self.step
        return Hit(cached, max(known, cached))

    def _keep(
        self, tree: RadixTree, namespace: Namespace, rendered: Rendered, matched: int
    ) -> None:
        full = rendered.full
        # The last token of an answer was sampled and never computed.
        whole = len(full) - 1 if len(rendered.answer_ids) else len(full)
        whole -= whole % self._page
        size = UNLIMITED if self.size is None else self.size // rendered.per_id
        ids = full[:whole]
        missing = whole - matched
        if missing <= 0 or whole > size:
            self._touch(tree, namespace, full, matched)
            return
        node = tree.lock(namespace, tree.match(namespace, ids, matched))
        free = size - tree.evictable_tokens - tree.locked_tokens
        if missing > free:
            tree.evict(missing - free)
            self._capped |= self.size is None
        tree.insert(namespace, ids, np.zeros(whole, dtype=np.int32))
        tree.unlock(node)

    def _touch(self, tree: RadixTree, namespace: Namespace, ids: object, matched: int) -> None:
        if matched:
            assert isinstance(ids, np.ndarray)
            tree.unlock(tree.lock(namespace, tree.match(namespace, ids, matched)))

    def _tree(self, per_id: int) -> RadixTree:
        found = self._trees.get(per_id)
        if found is None:
            page = self._page if per_id == 1 else 1
            found = self._trees[per_id] = RadixTree(
                page, eviction=self._policy, tombstone_tokens=UNLIMITED // 4
            )
        return found

    def _expire(self, call: Call, tree: RadixTree, namespace: Namespace) -> None:
        """With a time to live, a namespace that was quiet for so long is empty again."""
        if self.seconds is None or call.time is None:
            return
        last = self._seen.get(namespace)
        if last is not None and call.time - last > self.seconds:
            tree.flush()
            self._seen.clear()
        self._seen[namespace] = max(call.time, last or call.time)
