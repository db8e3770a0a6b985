"""The engine's radix tree, able to forget by age as well as by size."""

from __future__ import annotations

import heapq
import math

from agentkv.engine.kv.tree import RadixTree


class AgingTree(RadixTree):
    """With `lru` as its policy only: then the heap of leaves is in the order of their last use."""

    @property
    def held(self) -> int:
        """Tokens in the tree now."""
        return self.evictable_tokens + self.locked_tokens

    def expire(self, clock: int) -> int:
        """Evict whatever was last used at `clock` or before. Returns the tokens of it.

        A parent is used whenever a child is, so nothing younger stands below what goes.
        """
        gone = 0
        while self._leaves:
            key, _, node = self._leaves[0]
            if key == node.heap_key and self._is_leaf(node):
                if node.last_use > clock:
                    break
                heapq.heappop(self._leaves)
                node.heap_key = -math.inf
                gone += len(self._bury(node))
            else:
                heapq.heappop(self._leaves)
        if gone:
            self.version += 1
            self.evicted_tokens_total += gone
            self._forget_tombstones()
        return gone
