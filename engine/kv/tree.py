"""RadixTree: which token prefixes have their K/V in memory, and in which slots.

An edge holds token ids and the slot of each; a path from a root spells a prefix. What must always
hold (letters refer to the invariants in the design):

- A node is *live* (it owns `slots`) or a *tombstone* (`slots is None`: evicted, ids kept so that
  "evicted" and "never seen" can be told apart). Ancestors of a live node are live.
- Sizes are whole pages. `evictable_tokens + locked_tokens` is the sum of the live nodes' lengths;
  there is one length per node: `len(node.ids)`.
- Locks count paths: a locked node's ancestors are locked at least as often. A locked node is never
  evicted, and only live nodes without live children are (leaves first).
- Pins and pauses count paths, too. They keep nothing by force: what they are on leaves last, and its
  ids are not forgotten, so that it is kept again once it was computed again.
- `match` reads only. `lock` splits an edge where a match ends inside it; both halves keep locks,
  clock and hits (E).
- A flush starts a new generation. Nodes that requests still hold stay alive, unreachable, until
  their last `unlock`, which frees their slots (F).
- Keys are `(namespace, ids)`. Reuse compares ids, never a hash (L, M).

Time is a counter, so that a run replays exactly. Only numpy here, never torch. Not thread-safe.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentkv.engine.kv.eviction import EvictionKey, Marks, hot
from agentkv.engine.types import IntArray

Namespace = tuple[Hashable, ...]
Keep = Literal["pins", "pauses"]
KEEPS: tuple[Keep, ...] = ("pins", "pauses")
"""What makes a prefix leave last: a pin was asked for, a pause says that its session will resume."""

KEEP_TICKS: dict[Keep, float] = {"pins": 2.0**41, "pauses": 2.0**40}

_EMPTY = np.empty(0, dtype=np.int32)


class TreeError(AssertionError):
    """An invariant of the tree was violated; the message shows the terms."""


class Node:
    """One edge of the tree, and where it leads."""

    __slots__ = (
        "children",
        "generation",
        "heap_key",
        "hits",
        "ids",
        "last_use",
        "live_children",
        "locks",
        "parent",
        "pauses",
        "pins",
        "role",
        "root",
        "shares",
        "slots",
        "start",
    )

    def __init__(
        self, ids: IntArray, slots: IntArray | None, parent: Node | None, generation: int
    ) -> None:
        self.ids = ids
        self.slots = slots
        self.parent = parent
        self.children: dict[int | bytes, Node] = {}
        self.live_children = 0
        self.locks = 0
        self.hits = 0
        self.last_use = 0
        self.heap_key = -math.inf
        self.generation = generation
        self.role = 0
        """See `eviction.Role`."""
        self.shares = 0
        """Uses by others than the one it was made for, and whoever went on from there."""
        self.pins = 0
        self.pauses = 0
        self.root: Root | None = None if parent is None else parent.root
        self.start: int = 0 if parent is None else parent.start + len(parent.ids)
        """Tokens of the prefix before this edge."""

    def path(self) -> list[Node]:
        """The nodes from the root's child down to this one."""
        out: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            out.append(node)
            node = node.parent
        out.reverse()
        return out


class Root(Node):
    """The start of one namespace: an edge of no tokens, never evicted.

    `live`: tokens of the namespace that are in memory.
    """

    __slots__ = ("live", "namespace")

    def __init__(self, namespace: Namespace, generation: int) -> None:
        super().__init__(_EMPTY, None, None, generation)
        self.namespace = namespace
        self.live = 0
        self.root = self


@dataclass(frozen=True, slots=True)
class Match:
    """The longest live prefix: it ends `offset` tokens into `node`'s edge.

    `length`: live tokens, a multiple of the page size. `known`: tokens of the prefix that are in
    the tree when tombstones count too; `known > length` means that the rest was evicted.
    A match is a hint until it is locked.
    """

    node: Node
    offset: int
    length: int
    known: int
    generation: int


class RadixTree:
    """A forest of radix trees over token ids, one root a namespace.

    `page_size`: tokens a page (1, 16, 32, 64); matches, splits and inserts are cut to whole pages.
    `tombstone_tokens`: how many evicted tokens are remembered, oldest forgotten first.
    `floor`: tokens of each namespace that others cannot evict, as long as there is anything else.
    `quota`: a namespace that holds more than so many is evicted from first (None: no such limit).
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
        self.page_size = page_size
        self.floor = floor
        self.quota = quota
        self.kept_tokens: dict[Keep, int] = dict.fromkeys(KEEPS, 0)
        """Tokens under at least one pin, or pause; in memory or evicted."""
        self.generation = 0
        self.version = 0
        """Changes whenever the set of live prefixes does."""
        self.evictable_tokens = 0
        self.locked_tokens = 0
        self.evicted_tokens_total = 0
        self._eviction = eviction
        self._tombstone_limit = tombstone_tokens
        self._tombstone_tokens = 0
        self._tombstones: deque[Node] = deque()
        self._roots: dict[Namespace, Root] = {}
        self._leaves: list[tuple[float, int, Node]] = []
        self._leaf_count = 0
        self._clock = 0
        self._serials = itertools.count()

    # -- reading

    def match(self, namespace: Namespace, ids: IntArray, limit: int | None = None) -> Match:
        """The longest live prefix of `ids[:limit]`. Changes nothing."""
        end = len(ids) if limit is None else min(limit, len(ids))
        end -= end % self.page_size
        root = self._roots.get(namespace)
        if root is None:
            return Match(_NO_ROOT, 0, 0, 0, self.generation)
        offset, length, position, live = 0, 0, 0, True
        node: Node = root
        walk: Node = root
        while position < end:
            child = walk.children.get(self._key(ids, position))
            if child is None:
                break
            same = self._common(child.ids, ids, position, end)
            live = live and child.slots is not None
            position += same
            if live:
                node, offset, length = child, same, position
            if same < len(child.ids):
                break
            walk = child
        return Match(node, offset, length, position, self.generation)

    def slots(self, node: Node) -> IntArray:
        """Slots of the whole prefix that ends with `node`: int32 `[prefix length]`."""
        parts = [n.slots for n in node.path() if n.slots is not None]
        if not parts:
            return _EMPTY
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def nodes(self) -> Iterator[Node]:
        """Every reachable node below the roots, tombstones included, parents first. For checks."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    @property
    def clock(self) -> int:
        """Ticks so far."""
        return self._clock

    def root(self, namespace: Namespace) -> Root | None:
        """Where a namespace starts; None when nothing of it is known. For views."""
        return self._roots.get(namespace)

    @property
    def namespaces(self) -> tuple[Namespace, ...]:
        return tuple(self._roots)

    @property
    def tombstone_tokens(self) -> int:
        return self._tombstone_tokens

    # -- locking

    def lock(self, namespace: Namespace, match: Match) -> Node:
        """Pin the matched prefix and return the node that ends it: the handle for `unlock`.

        Splits the edge if the match ends inside it. Must follow its `match` with nothing between
        that could evict. Counts as one use of every node on the path, and as a share unless it goes
        on where the path ended (or did, before that was evicted): the next turn of a conversation
        says nothing about whether others will want its prefix.
        """
        inside = match.offset < len(match.node.ids)
        share = (inside or bool(match.node.children)) and match.known == match.length
        node = self._end(namespace, match)
        self._clock += 1
        self._lock(node)
        walk: Node | None = node
        while walk is not None:
            walk.hits += 1
            walk.shares += share
            walk.last_use = self._clock
            walk = walk.parent
        return node

    def lock_unused(self, namespace: Namespace, match: Match) -> Node:
        """`lock` that is nobody's use: a transfer's, or one that keeps a place."""
        node = self._end(namespace, match)
        self._lock(node)
        return node

    def unlock(self, node: Node) -> IntArray:
        """Release one lock of the path. Returns slots to free: only those of flushed generations."""
        freed: list[IntArray] = []
        walk: Node | None = node
        while walk is not None:
            if walk.locks <= 0:
                raise TreeError(
                    f"unlock of a node with {walk.locks} locks ({len(walk.ids)} tokens)"
                )
            walk.locks -= 1
            if walk.locks == 0 and walk.parent is not None:
                self.locked_tokens -= len(walk.ids)
                if walk.generation == self.generation:
                    self.evictable_tokens += len(walk.ids)
                    self._offer(walk)
                elif walk.slots is not None:
                    freed.append(walk.slots)
                    walk.slots = None
            if isinstance(walk, Root):
                self._drop_if_empty(walk)
            walk = walk.parent
        return np.concatenate(freed) if freed else _EMPTY

    def relock(self, namespace: Namespace, old: Node, ids: IntArray) -> Node:
        """Move a lock from `old` to the node that ends the prefix `ids`, all of it live.

        The new path is locked before the old one is let go, and nobody's use is counted.
        """
        found = self.match(namespace, ids)
        if found.length != len(ids) or (found.offset and found.offset < len(found.node.ids)):
            raise TreeError(f"relock to {len(ids)} tokens, of which {found.length} end on a node")
        self._lock(found.node)
        self.unlock(old)
        return found.node

    # -- keeping

    def keep(self, kind: Keep, namespace: Namespace, match: Match) -> Node:
        """Let the matched prefix leave last. Returns the node for `unkeep`."""
        node = self._end(namespace, match)
        walk: Node | None = node
        while walk is not None and walk.parent is not None:
            count = getattr(walk, kind)
            if count == 0:
                self.kept_tokens[kind] += len(walk.ids)
            setattr(walk, kind, count + 1)
            self._rekey(walk)
            walk = walk.parent
        return node

    def unkeep(self, kind: Keep, node: Node) -> None:
        """Take back one `keep`; whoever flushed the tree meanwhile has taken it back already."""
        if node.generation != self.generation:
            return
        walk: Node | None = node
        while walk is not None and walk.parent is not None:
            count = getattr(walk, kind)
            if count <= 0:
                raise TreeError(f"unkeep of a node with {count} {kind}")
            setattr(walk, kind, count - 1)
            if count == 1:
                self.kept_tokens[kind] -= len(walk.ids)
            self._rekey(walk)
            walk = walk.parent

    def mark(self, namespace: Namespace, ids: IntArray, marks: Marks) -> None:
        """Note the roles of the tokens of `ids`; the highest that anybody said of a node counts.

        Edges are cut where roles change, so that a tail can leave without what is before it.
        """
        parent: Node | None = self._roots.get(namespace)
        position = 0
        for end, role in marks:
            end = min(end, len(ids))
            end -= end % self.page_size
            while parent is not None and position < end:
                child = parent.children.get(self._key(ids, position))
                if child is None:
                    return
                same = self._common(child.ids, ids, position, end)
                if same == 0:
                    return
                if same < len(child.ids):
                    child = self._split(child, same)
                # The first word counts, then the highest.
                told = role if child.role == 0 and child.hits <= 1 else max(child.role, role)
                if told != child.role:
                    child.role = told
                    self._rekey(child)
                position += same
                parent = child

    def demote(self, node: Node) -> int:
        """A branch that ends with `node` is finished: what only it used leaves first. Returns its
        tokens. Others' tokens, and those of a role that others may ask for, stay where they are."""
        tokens = 0
        walk: Node | None = node
        while walk is not None and walk.parent is not None:
            if len(walk.children) > (walk is not node) or walk.role > 0 or walk.pins:
                break
            walk.last_use = walk.hits = walk.shares = 0
            tokens += len(walk.ids)
            self._rekey(walk)
            walk = walk.parent
        return tokens

    # -- writing

    def insert(self, namespace: Namespace, ids: IntArray, slots: IntArray) -> int:
        """Publish a prefix whose K/V has been computed. Returns how much of it was live already.

        `ids` and `slots`: int32 of equal length, a multiple of the page size. The tree takes over
        `slots[existed:]`; the caller keeps, and must free, its duplicates in `slots[:existed]`.
        """
        if len(ids) != len(slots) or len(ids) % self.page_size:
            raise TreeError(
                f"insert of {len(ids)} ids with {len(slots)} slots, page {self.page_size}"
            )
        self._clock += 1
        parent: Node = self._root(namespace)
        position = existed = 0
        while position < len(ids):
            key = self._key(ids, position)
            child = parent.children.get(key)
            if child is None:
                same = len(ids) - position
                child = self._node(ids[position:].copy(), None, parent)
                parent.children[key] = child
                self._go_live(child, slots[position:].copy())
            else:
                same = self._common(child.ids, ids, position, len(ids))
                if same < len(child.ids):
                    child = self._split(child, same)
                if child.slots is not None:
                    existed += same
                else:
                    self._unbury(child)
                    self._go_live(child, slots[position : position + same].copy())
            child.last_use = self._clock
            position += same
            parent = child
        if parent.parent is not None:
            self._offer(parent)
        return existed

    def evict(self, tokens: int, sliver: int = 0) -> IntArray:
        """Evict at least `tokens` tokens, leaves first, or all there are. Returns their slots.

        The last leaf is cut at a page border instead of going whole, so that no more is lost than
        was asked for; but a head of at most `sliver` tokens goes too, since slivers leave the free
        slots in pieces.
        """
        freed: list[IntArray] = []
        missing = tokens - self._evict_over_quota(tokens, sliver, freed)
        if self.floor:
            missing -= self._evict_leaves(missing, sliver, self.floor, freed)
        # Room that was promised has to come from somewhere.
        self._evict_leaves(missing, sliver, 0, freed)
        if not freed:
            return _EMPTY
        self.version += 1
        out = freed[0] if len(freed) == 1 else np.concatenate(freed)
        self.evicted_tokens_total += len(out)
        self._forget_tombstones()
        return out

    def flush(self) -> IntArray:
        """Forget every prefix, tombstones too. Returns the slots that nobody holds.

        Slots of locked nodes come back from their last `unlock`.
        """
        freed: list[IntArray] = []
        for node in self.nodes():
            if node.slots is not None and node.locks == 0:
                freed.append(node.slots)
                node.slots = None
        self.generation += 1
        self.version += 1
        self.evictable_tokens = 0
        self.kept_tokens = dict.fromkeys(KEEPS, 0)
        self._roots = {}
        self._leaves = []
        self._tombstones.clear()
        self._tombstone_tokens = 0
        return np.concatenate(freed) if freed else _EMPTY

    # -- checking

    def check(self) -> None:
        """Walk everything and verify the invariants above. Raises `TreeError` with the terms."""
        evictable = locked = dead = 0
        live: dict[Namespace, int] = dict.fromkeys(self._roots, 0)
        kept = dict.fromkeys(KEEPS, 0)
        for node in self.nodes():
            parent = node.parent
            if parent is None or parent.children.get(self._key(node.ids, 0)) is not node:
                raise TreeError("a node is not its parent's child")
            held_below = sum(child.locks for child in node.children.values())
            if held_below > node.locks:
                raise TreeError(f"{held_below} locks below a node that has {node.locks}")
            if len(node.ids) == 0 or len(node.ids) % self.page_size:
                raise TreeError(f"an edge of {len(node.ids)} tokens, page {self.page_size}")
            if node.live_children != sum(c.slots is not None for c in node.children.values()):
                raise TreeError(f"{node.live_children} live children counted wrongly")
            if parent.start + len(parent.ids) != node.start or node.root is not parent.root:
                raise TreeError(f"an edge at {node.start} below one that ends elsewhere")
            for kind in KEEPS:
                below = sum(getattr(child, kind) for child in node.children.values())
                if below > getattr(node, kind):
                    raise TreeError(f"{below} {kind} below a node with {getattr(node, kind)}")
                kept[kind] += len(node.ids) if getattr(node, kind) else 0
            if node.slots is None:
                dead += len(node.ids) if self._dead(node) else 0
                if node.live_children or node.locks:
                    raise TreeError("a tombstone is locked or has live children")
                continue
            if len(node.slots) != len(node.ids):
                raise TreeError(f"{len(node.ids)} ids, {len(node.slots)} slots")
            if parent.parent is not None and parent.slots is None:
                raise TreeError("a live node below a tombstone")
            assert node.root is not None
            live[node.root.namespace] += len(node.ids)
            if node.locks:
                locked += len(node.ids)
            else:
                evictable += len(node.ids)
                if self._is_leaf(node) and node.heap_key == -math.inf:
                    raise TreeError("an evictable leaf is not in the heap")
        if evictable != self.evictable_tokens or dead != self._tombstone_tokens:
            raise TreeError(
                f"evictable {evictable} != {self.evictable_tokens} counted, "
                f"tombstones {dead} != {self._tombstone_tokens} counted"
            )
        for namespace, tokens in live.items():
            if tokens != self._roots[namespace].live:
                raise TreeError(f"a namespace has {tokens}, {self._roots[namespace].live} counted")
        if kept != self.kept_tokens:
            raise TreeError(f"kept {kept}, {self.kept_tokens} counted")
        # Nodes of flushed generations are locked too, and cannot be reached from here.
        if locked > self.locked_tokens or (self.generation == 0 and locked != self.locked_tokens):
            raise TreeError(f"locked {locked} reachable, {self.locked_tokens} counted")

    # -- inside

    def _key(self, ids: IntArray, position: int) -> int | bytes:
        if self.page_size == 1:
            return int(ids[position])
        return ids[position : position + self.page_size].tobytes()

    def _common(self, edge: IntArray, ids: IntArray, position: int, end: int) -> int:
        """How many leading tokens of `edge` equal `ids[position:end]`, in whole pages."""
        count = min(len(edge), end - position)
        differs = edge[:count] != ids[position : position + count]
        first = int(differs.argmax())
        if not differs[first]:
            first = count
        return first - first % self.page_size

    def _root(self, namespace: Namespace) -> Root:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Root(namespace, self.generation)
        return root

    def _end(self, namespace: Namespace, match: Match) -> Node:
        """The node that a match ends with; splits the edge if it ends inside one."""
        if match.generation != self.generation:
            raise TreeError("the match is older than the last flush; match again")
        if match.node is _NO_ROOT:
            return self._root(namespace)
        if match.offset and match.offset < len(match.node.ids):
            return self._split(match.node, match.offset)
        return match.node

    def _lock(self, node: Node) -> None:
        walk: Node | None = node
        while walk is not None:
            if walk.locks == 0 and walk.parent is not None:
                self.evictable_tokens -= len(walk.ids)
                self.locked_tokens += len(walk.ids)
            walk.locks += 1
            walk = walk.parent

    def _node(self, ids: IntArray, slots: IntArray | None, parent: Node | None) -> Node:
        return Node(ids, slots, parent, self.generation)

    def _split(self, node: Node, at: int) -> Node:
        """Cut `node`'s edge after `at` tokens. Returns the new upper half; `node` is the lower."""
        parent = node.parent
        assert parent is not None
        upper = self._node(
            node.ids[:at].copy(), None if node.slots is None else node.slots[:at].copy(), parent
        )
        upper.locks, upper.last_use = node.locks, node.last_use
        upper.hits, upper.shares = node.hits, node.shares
        upper.pins, upper.pauses, upper.role = node.pins, node.pauses, node.role
        parent.children[self._key(node.ids, 0)] = upper
        node.ids = node.ids[at:].copy()
        node.parent = upper
        node.start += at
        upper.children[self._key(node.ids, 0)] = node
        if node.slots is not None:
            node.slots = node.slots[at:].copy()
            upper.live_children = 1
        elif self._dead(node):
            self._tombstones.append(upper)
        return upper

    def _go_live(self, node: Node, slots: IntArray) -> None:
        """Give a new node, or a tombstone, its slots."""
        assert node.parent is not None
        node.slots = slots
        node.parent.live_children += 1
        assert node.root is not None
        node.root.live += len(slots)
        self.evictable_tokens += len(slots)
        self.version += 1

    def _is_leaf(self, node: Node) -> bool:
        return (
            node.slots is not None
            and node.locks == 0
            and node.live_children == 0
            and node.parent is not None
            and node.generation == self.generation
        )

    def _offer(self, node: Node) -> None:
        """Put an evictable leaf into the heap, with the key it has now."""
        if not self._is_leaf(node):
            return
        node.heap_key = self._worth(node)
        heapq.heappush(self._leaves, (node.heap_key, next(self._serials), node))
        if len(self._leaves) > 1024 and len(self._leaves) > 8 * max(1, self._leaf_count):
            self._compact_heap()

    def _worth(self, node: Node) -> float:
        """The policy's key, above all others where somebody keeps the node."""
        key = self._eviction(node)
        if node.pins:
            return key + KEEP_TICKS["pins"]
        return key + KEEP_TICKS["pauses"] if node.pauses else key

    def _rekey(self, node: Node) -> None:
        """A node's key has changed by other than a use."""
        self._offer(node)

    def _evict_leaves(self, tokens: int, sliver: int, floor: int, freed: list[IntArray]) -> int:
        """Evict up to `tokens`, leaving each namespace `floor` tokens. Returns how many went."""
        done = 0
        spared: list[Node] = []
        while done < tokens and self._leaves:
            key, _, node = heapq.heappop(self._leaves)
            if key != node.heap_key or not self._is_leaf(node):
                continue
            node.heap_key = -math.inf
            most = tokens - done
            if floor:
                assert node.root is not None
                most = min(most, node.root.live - floor)
                most -= most % self.page_size
                if most <= 0:
                    spared.append(node)
                    continue
            freed.append(self._cut_leaf(node, most, 0 if floor else sliver))
            done += len(freed[-1])
        for node in spared:
            self._offer(node)
        return done

    def _cut_leaf(self, node: Node, most: int, sliver: int) -> IntArray:
        """Evict `most` tokens of a leaf from its end, or all of it when little would be left."""
        keep = len(node.ids) - most
        keep -= keep % self.page_size
        return self._trim(node, keep) if keep > sliver else self._bury(node)

    def _evict_over_quota(self, tokens: int, sliver: int, freed: list[IntArray]) -> int:
        """Evict from namespaces that hold more than their quota, up to `tokens`. Returns how many.

        Their leaves are looked for anew each time: it happens once for many pages, and only while
        somebody is over.
        """
        if self.quota is None:
            return 0
        done = 0
        over = [r for r in self._roots.values() if r.live > self.quota]
        for root in sorted(over, key=lambda r: -r.live):
            stack: list[Node] = list(root.children.values())
            heap: list[tuple[float, int, Node]] = []
            while stack:
                node = stack.pop()
                stack.extend(node.children.values())
                if self._is_leaf(node):
                    heap.append((self._worth(node), next(self._serials), node))
            heapq.heapify(heap)
            while heap and done < tokens and root.live > self.quota:
                _, _, node = heapq.heappop(heap)
                parent = node.parent
                most = min(tokens - done, root.live - self.quota)
                node.heap_key = -math.inf
                freed.append(self._cut_leaf(node, most + -most % self.page_size, sliver))
                done += len(freed[-1])
                if parent is not None and self._is_leaf(parent):
                    heapq.heappush(heap, (self._worth(parent), next(self._serials), parent))
        return done

    def _compact_heap(self) -> None:
        current = {
            id(n): (k, s, n) for k, s, n in self._leaves if k == n.heap_key and self._is_leaf(n)
        }
        self._leaves = list(current.values())
        heapq.heapify(self._leaves)
        self._leaf_count = len(self._leaves)

    def _bury(self, node: Node) -> IntArray:
        """Turn an evictable leaf into a tombstone; its parent may become a leaf."""
        slots, parent = node.slots, node.parent
        assert slots is not None and parent is not None
        node.slots = None
        node.heap_key = -math.inf
        assert node.root is not None
        node.root.live -= len(slots)
        self.evictable_tokens -= len(slots)
        if self._dead(node):
            self._entomb(node)
        parent.live_children -= 1
        self._offer(parent)
        return slots

    def _dead(self, node: Node) -> bool:
        """Are its ids all that is left of a node?"""
        return node.slots is None

    def _entomb(self, node: Node) -> None:
        self._tombstone_tokens += len(node.ids)
        self._tombstones.append(node)

    def _unbury(self, node: Node) -> None:
        """A node that is off the device is about to get slots."""
        self._tombstone_tokens -= len(node.ids)

    def _trim(self, node: Node, keep: int) -> IntArray:
        """Evict the tail of a leaf; the head stays a leaf."""
        only = next(iter(node.children.values())) if len(node.children) == 1 else None
        self._split(node, keep)
        slots = self._bury(node)
        tail = only is not None and not only.children and self._dead(only) and self._dead(node)
        if tail and only is not None and (only.pins, only.pauses) == (node.pins, node.pauses):
            # Trimmed before: keep one tombstone for the whole tail, not one a trim.
            node.ids = np.concatenate([node.ids, only.ids])
            node.children = {}
            only.parent = None
        return slots

    def _forget_tombstones(self) -> None:
        """Drop the oldest tombstones over the limit. A child is always evicted before its parent."""
        kept: list[Node] = []
        while self._tombstone_tokens > self._tombstone_limit and self._tombstones:
            node = self._tombstones.popleft()
            if node.parent is None or node.generation != self.generation or not self._dead(node):
                continue
            if not self._may_forget(node):
                kept.append(node)
                continue
            parent = node.parent
            del parent.children[self._key(node.ids, 0)]
            stack = [node]
            while stack:
                dead = stack.pop()
                self._forgotten(dead)
                dead.parent = None
                stack.extend(dead.children.values())
            if isinstance(parent, Root):
                self._drop_if_empty(parent)
        self._tombstones.extend(kept)
        if len(self._tombstones) > 1024 + 2 * self._tombstone_tokens:
            # Revived and merged ones are still queued; keep the queue as short as what it stands for.
            self._tombstones = deque(n for n in self._tombstones if n.parent and self._dead(n))

    def _may_forget(self, node: Node) -> bool:
        return node.pins == node.pauses == 0

    def _forgotten(self, node: Node) -> None:
        self._tombstone_tokens -= len(node.ids)

    def _drop_if_empty(self, root: Root) -> None:
        if not root.children and root.locks == 0 and self._roots.get(root.namespace) is root:
            del self._roots[root.namespace]


_NO_ROOT = Root((), 0)
