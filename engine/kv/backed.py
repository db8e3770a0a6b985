"""BackedTree: a radix tree whose nodes may live on below the device, in host memory and on disk.

A node is on the device (`slots`), in a lower tier (`back[tier]`: its slots there), or both. What
must always hold, beside what `RadixTree` promises:

- In each tier a slot belongs to one node; `backed_tokens[tier]` is the sum over the nodes.
- A node with a copy anywhere is no tombstone: its ids are kept for as long as the copy is.
- `hold` pins the copies of a whole path (as `lock` pins slots): held ones are never evicted from
  their tier. Holds survive splits, and a flush: then the last `unhold` frees the copies.
- Lower tiers need no ancestors. A copy below a gap cannot be reached by a match; it comes back
  into reach when the gap is computed again, or leaves as the least recently used.

Freed slots of lower tiers wait in `freed[tier]` until their owner takes them. Not thread-safe.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentkv.engine.kv.eviction import EvictionKey, hot
from agentkv.engine.kv.tree import Namespace, Node, RadixTree, Root, TreeError
from agentkv.engine.types import IntArray

HOST, DISK = 0, 1
TIERS: tuple[Literal["host", "disk"], ...] = ("host", "disk")


class BackedNode(Node):
    """`back[tier]`: slots of the whole edge in that tier, or None. `holds` pins all of them."""

    __slots__ = ("back", "holds")

    def __init__(
        self, ids: IntArray, slots: IntArray | None, parent: Node | None, generation: int
    ) -> None:
        super().__init__(ids, slots, parent, generation)
        self.back: list[IntArray | None] = [None] * len(TIERS)
        self.holds = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens `[start, end)` of a prefix, and where a copy of them is: `slots` in `tier`."""

    start: int
    end: int
    tier: int
    slots: IntArray


class BackedTree(RadixTree):
    """`RadixTree` with copies in lower tiers.

    `on_bury(node)` is called before a node loses its device slots: it may `give` it a copy.
    """

    def __init__(
        self,
        page_size: int = 1,
        *,
        eviction: EvictionKey = hot,
        tombstone_tokens: int = 1 << 20,
        floor: int = 0,
        quota: int | None = None,
    ) -> None:
        super().__init__(
            page_size,
            eviction=eviction,
            tombstone_tokens=tombstone_tokens,
            floor=floor,
            quota=quota,
        )
        self.on_bury: Callable[[BackedNode], None] | None = None
        self.backed_tokens = [0] * len(TIERS)
        self.evicted_from = [0] * len(TIERS)
        """Tokens that a tier evicted, over the tree's life."""
        self.freed: list[list[IntArray]] = [[] for _ in TIERS]
        self._queues: list[list[tuple[float, int, int, BackedNode]]] = [[] for _ in TIERS]

    # -- reading

    def backed(self, namespace: Namespace, ids: IntArray, limit: int) -> list[Segment]:
        """What follows the device's part of a prefix in lower tiers, without a gap.

        The longest run of tokens of `ids[:limit]`, in whole pages, from the end of the live prefix
        on, of which each token has a copy. The upper tier is named where there are two. A node that
        is on the device again further down ends the run: it will be found once the gap is closed.
        """
        end = limit - limit % self.page_size
        walk: Node | None = self._roots.get(namespace)
        position, out = 0, list[Segment]()
        while walk is not None and position < end:
            child = walk.children.get(self._key(ids, position))
            if child is None:
                break
            assert isinstance(child, BackedNode)
            same = self._common(child.ids, ids, position, end)
            if child.slots is None:
                tier = next((t for t, slots in enumerate(child.back) if slots is not None), None)
                if tier is None or same == 0:
                    break
                slots = child.back[tier]
                assert slots is not None
                out.append(Segment(position, position + same, tier, slots[:same]))
            elif out:
                break
            position += same
            walk = child if same == len(child.ids) else None
        return out

    def missing(self, tier: int, namespace: Namespace, ids: IntArray) -> list[tuple[int, int]]:
        """Ranges of the live prefix `ids` that have no copy in `tier`, in order, joined."""
        out: list[tuple[int, int]] = []
        walk: Node | None = self._roots.get(namespace)
        position = 0
        while walk is not None and position < len(ids):
            child = walk.children.get(self._key(ids, position))
            if child is None or child.slots is None:
                break
            assert isinstance(child, BackedNode)
            same = self._common(child.ids, ids, position, len(ids))
            if child.back[tier] is None and same:
                if out and out[-1][1] == position:
                    out[-1] = (out[-1][0], position + same)
                else:
                    out.append((position, position + same))
            position += same
            walk = child if same == len(child.ids) else None
        return out

    def storable(self, namespace: Namespace, ids: IntArray) -> tuple[int, int, IntArray]:
        """The first stretch of `ids` that is on the host and not on disk: start, end, host slots.

        Empty when what is before it is not on disk: a file without what comes before it could never
        be reached after a restart.
        """
        walk: Node | None = self._roots.get(namespace)
        position, start = 0, 0
        parts: list[IntArray] = []
        while walk is not None and position < len(ids):
            child = walk.children.get(self._key(ids, position))
            if child is None:
                break
            assert isinstance(child, BackedNode)
            same = self._common(child.ids, ids, position, len(ids))
            host = child.back[HOST]
            if child.back[DISK] is not None:
                if parts:
                    break
            elif host is None or same == 0:
                break
            else:
                start = start if parts else position
                parts.append(host[:same])
            position += same
            walk = child if same == len(child.ids) else None
        slots = np.concatenate(parts) if parts else _NONE
        return start, start + len(slots), slots

    def on_disk(self, node: BackedNode) -> bool:
        """Whether all that leads to the end of `node` is there."""
        walk: Node | None = node
        while isinstance(walk, BackedNode):
            if walk.back[DISK] is None:
                return False
            walk = walk.parent
        return True

    def ids_to(self, node: Node) -> tuple[Namespace, IntArray]:
        """Namespace and token ids of the whole prefix that ends with `node`."""
        path = node.path()
        root: Node = node
        while root.parent is not None:
            root = root.parent
        if not isinstance(root, Root):
            raise TreeError("a node that hangs from no root")
        return root.namespace, np.concatenate([n.ids for n in path])

    # -- copies

    def give(self, node: BackedNode, tier: int, slots: IntArray) -> None:
        """Note a copy of a node's whole edge in `tier`. The tree takes over `slots`."""
        if len(slots) != len(node.ids) or node.back[tier] is not None:
            raise TreeError(f"a copy of {len(slots)} slots for {len(node.ids)} tokens")
        if self._dead(node):
            self._tombstone_tokens -= len(node.ids)
        node.back[tier] = slots
        self.backed_tokens[tier] += len(slots)
        self._queue(tier, node)

    def attach(
        self,
        tier: int,
        namespace: Namespace,
        ids: IntArray,
        start: int,
        slots: IntArray,
        generation: int,
    ) -> IntArray:
        """Note copies of tokens `[start, start + len(slots))` of the prefix `ids`, where the tree
        knows these tokens and has none in `tier` yet. Returns the slots that are not needed.

        By ids, not by node: a transfer takes time, and edges may have been split, evicted or
        flushed meanwhile. Ids that are not in the tree are put there as evicted ones when all of
        `ids` up to them is known (so the index of a disk becomes a tree).
        """
        if generation != self.generation:
            return slots
        left: list[IntArray] = []
        parent: Node = self._root(namespace)
        position, end = 0, start + len(slots)
        while position < end:
            child = parent.children.get(self._key(ids, position))
            if child is None:
                if position < start:
                    left.append(slots[max(0, position - start) :])
                    break
                child = self._node(ids[position:end].copy(), None, parent)
                parent.children[self._key(ids, position)] = child
                self._entomb(child)
            assert isinstance(child, BackedNode)
            same = self._common(child.ids, ids, position, end)
            if same == 0:
                left.append(slots[max(0, position - start) :])
                break
            if position < start < position + same:
                child = self._cut(child, start - position)
                same = start - position
            elif same < len(child.ids):
                child = self._cut(child, same)
            if position >= start:
                mine = slots[position - start : position - start + same]
                there = child.back[tier]
                if there is None:
                    self.give(child, tier, mine.copy())
                elif not np.array_equal(there, mine):
                    left.append(mine)
            position += same
            parent = child
        self._drop_if_empty(self._root(namespace))
        return np.concatenate(left) if left else _NONE

    def drop(self, tier: int, namespace: Namespace, ids: IntArray, start: int) -> IntArray:
        """Forget the copies in `tier` of tokens `[start, len(ids))` of a prefix (a file was found
        damaged). Returns their slots, held or not: what they hold is wrong."""
        gone: list[IntArray] = []
        walk: Node | None = self._roots.get(namespace)
        position = 0
        while walk is not None and position < len(ids):
            child = walk.children.get(self._key(ids, position))
            if child is None:
                break
            assert isinstance(child, BackedNode)
            same = self._common(child.ids, ids, position, len(ids))
            if position + same > start and child.back[tier] is not None:
                if position < start:
                    child = self._cut(child, start - position)
                    same = start - position
                else:
                    if same < len(child.ids):
                        child = self._cut(child, same)
                    gone.append(self._take(child, tier))
            position += same
            walk = child if same == len(child.ids) else None
        return np.concatenate(gone) if gone else _NONE

    def evict_back(self, tier: int, tokens: int) -> IntArray:
        """Evict at least `tokens` tokens from `tier`, least recently used first, or all there are.
        Returns their slots. What is held stays."""
        freed: list[IntArray] = []
        held: list[BackedNode] = []
        missing = tokens
        queue = self._queues[tier]
        while missing > 0 and queue:
            worth, _, _, node = heapq.heappop(queue)
            if node.back[tier] is None or node.generation != self.generation:
                continue
            if node.holds:
                held.append(node)
                continue
            if self._worth(node) != worth:
                self._queue(tier, node)
                continue
            keep = len(node.ids) - missing
            keep -= keep % self.page_size
            if keep > 0:
                self._queue(tier, self._cut(node, keep))
            freed.append(self._take(node, tier))
            missing -= len(freed[-1])
        for node in held:
            self._queue(tier, node)
        if not freed:
            return _NONE
        out = np.concatenate(freed)
        self.evicted_from[tier] += len(out)
        self._forget_tombstones()
        return out

    def hold(self, namespace: Namespace, ids: IntArray) -> BackedNode | None:
        """Pin the copies of the path `ids`; returns the handle for `unhold`, None if it is not all
        known. Splits the last edge when the prefix ends inside it."""
        parent: Node | None = self._roots.get(namespace)
        position = 0
        node: BackedNode | None = None
        while parent is not None and position < len(ids):
            child = parent.children.get(self._key(ids, position))
            if child is None:
                return None
            assert isinstance(child, BackedNode)
            same = self._common(child.ids, ids, position, len(ids))
            if same < len(child.ids):
                if position + same < len(ids):
                    return None
                child = self._cut(child, same)
            position += same
            parent = node = child
        walk: Node | None = node
        while isinstance(walk, BackedNode):
            walk.holds += 1
            walk = walk.parent
        return node

    def unhold(self, node: BackedNode) -> None:
        """Release one hold of the path. Host slots of flushed generations go to `freed`; what is on
        disk is the disk's, and outlives a flush."""
        walk: Node | None = node
        while isinstance(walk, BackedNode):
            if walk.holds <= 0:
                raise TreeError(f"unhold of a node with {walk.holds} holds")
            walk.holds -= 1
            if walk.holds == 0 and walk.generation != self.generation:
                host = walk.back[HOST]
                if host is not None:
                    self.freed[HOST].append(host)
                walk.back = [None] * len(TIERS)
            walk = walk.parent

    def take_freed(self, tier: int) -> IntArray:
        """The slots of `tier` that became free on the way since the last time."""
        parts, self.freed[tier] = self.freed[tier], []
        return np.concatenate(parts) if parts else _NONE

    def flush(self) -> IntArray:
        for node in self.nodes():
            assert isinstance(node, BackedNode)
            host = node.back[HOST]
            if node.holds == 0:
                if host is not None:
                    self.freed[HOST].append(host)
                node.back = [None] * len(TIERS)
        self.freed[DISK] = []
        self.backed_tokens = [0] * len(TIERS)
        self._queues = [[] for _ in TIERS]
        return super().flush()

    def check(self) -> None:
        """The invariants of both classes. Raises `TreeError` with the terms."""
        super().check()
        found = [0] * len(TIERS)
        for node in self.nodes():
            assert isinstance(node, BackedNode)
            for tier, slots in enumerate(node.back):
                if slots is not None:
                    found[tier] += len(slots)
                    if len(slots) != len(node.ids):
                        raise TreeError(f"{len(node.ids)} ids, {len(slots)} slots in tier {tier}")
            below = sum(c.holds for c in node.children.values() if isinstance(c, BackedNode))
            if below > node.holds:
                raise TreeError(f"{below} holds below a node that has {node.holds}")
        if found != self.backed_tokens:
            raise TreeError(f"tiers hold {found} tokens, {self.backed_tokens} counted")

    # -- inside

    def _node(self, ids: IntArray, slots: IntArray | None, parent: Node | None) -> Node:
        return BackedNode(ids, slots, parent, self.generation)

    def _cut(self, node: BackedNode, at: int) -> BackedNode:
        """`_split`, typed: the upper half. A head of no live token is fine in lower tiers."""
        upper = self._split(node, at)
        assert isinstance(upper, BackedNode)
        return upper

    def _split(self, node: Node, at: int) -> Node:
        upper = super()._split(node, at)
        assert isinstance(upper, BackedNode) and isinstance(node, BackedNode)
        upper.holds = node.holds
        for tier, slots in enumerate(node.back):
            if slots is not None:
                upper.back[tier], node.back[tier] = slots[:at].copy(), slots[at:].copy()
                self._queue(tier, upper)
        return upper

    def _bury(self, node: Node) -> IntArray:
        if self.on_bury is not None:
            assert isinstance(node, BackedNode)
            self.on_bury(node)
        return super()._bury(node)

    def _dead(self, node: Node) -> bool:
        assert isinstance(node, BackedNode)
        return node.slots is None and all(slots is None for slots in node.back)

    def _unbury(self, node: Node) -> None:
        if self._dead(node):
            super()._unbury(node)

    def _may_forget(self, node: Node) -> bool:
        """A tombstone above copies that are being moved stays: their transfer looks for it by ids."""
        if not super()._may_forget(node):
            return False
        stack = [node]
        while stack:
            below = stack.pop()
            assert isinstance(below, BackedNode)
            if below.holds:
                return False
            stack.extend(below.children.values())
        return True

    def _forgotten(self, node: Node) -> None:
        assert isinstance(node, BackedNode)
        if self._dead(node):
            super()._forgotten(node)
            return
        for tier in range(len(TIERS)):
            if node.back[tier] is not None:
                slots = node.back[tier]
                assert slots is not None
                node.back[tier] = None
                self.backed_tokens[tier] -= len(slots)
                self.freed[tier].append(slots)

    def _take(self, node: BackedNode, tier: int) -> IntArray:
        """Take a node's copy away; it may become a tombstone by that."""
        slots = node.back[tier]
        assert slots is not None
        node.back[tier] = None
        self.backed_tokens[tier] -= len(slots)
        if self._dead(node):
            self._entomb(node)
        return slots

    def _rekey(self, node: Node) -> None:
        super()._rekey(node)
        assert isinstance(node, BackedNode)
        for tier in range(len(TIERS)):
            if node.back[tier] is not None:
                self._queue(tier, node)

    def _queue(self, tier: int, node: BackedNode) -> None:
        queue = self._queues[tier]
        heapq.heappush(queue, self._entry(node))
        if len(queue) > 4096 and len(queue) > 16 * max(1, self.backed_tokens[tier] // 64):
            live = {id(n): n for _, _, _, n in queue if n.back[tier] is not None}
            queue[:] = [self._entry(n) for n in live.values() if n.generation == self.generation]
            heapq.heapify(queue)

    def _entry(self, node: BackedNode) -> tuple[float, int, int, BackedNode]:
        # Deeper first among equals: a parent is used whenever a child is.
        end = node.start + len(node.ids)
        return (self._worth(node), -end, next(self._serials), node)


_NONE = np.empty(0, dtype=np.int32)
