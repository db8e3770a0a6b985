"""Groups: what a store knows of its groups, in memory, each look-up in steps that do not grow with
their number.

Groups of one prefix follow each other: each has a parent, the group that holds the token before its
first. A child may start inside its parent (two prefixes part there). Two siblings that start at the
same token differ in their first page, so a prefix is followed by looking up one page a group.

Not thread-safe. Imports no torch.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Callable

import numpy as np

from agentkv.engine.kv.store import Found, Group
from agentkv.engine.types import IntArray

HALF_LIFE = 6 * 3600.0
"""Seconds after which a hit of a group counts half."""


class Groups:
    """Groups by row, slot, namespace, prefix and usefulness."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.bytes = 0
        self._rows: dict[int, Group] = {}
        self._tags: dict[str, dict[int, Group]] = {}
        self._bases: list[int] = []
        self._by_base: dict[int, Group] = {}
        self._next = 0
        self._below: dict[int, dict[int, dict[int, Group]]] = {}
        """Of each parent: its children, by the token they start at."""
        self._first: dict[tuple[str, int | None, int, bytes], list[Group]] = {}
        self._useless = _Leaves(self._rows, _use)
        self._oldest = _Leaves(self._rows, lambda group: (group.used,))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, group: Group) -> bool:
        return self._rows.get(group.row) is group

    def get(self, row: int) -> Group | None:
        return self._rows.get(row)

    def all(self, tag: str | None = None) -> list[Group]:
        """Those of a namespace (or all), parents before children."""
        found = self._rows if tag is None else self._tags.get(tag, {})
        return sorted(found.values(), key=lambda g: (g.start, g.row))

    def add(self, group: Group) -> Group:
        """Enter a group, and give it its slots. Its parent must be known."""
        group.base, self._next = self._next, self._next + group.tokens
        group.live = group.tokens
        self._rows[group.row] = group
        self._tags.setdefault(group.tag, {})[group.row] = group
        self._bases.append(group.base)
        self._by_base[group.base] = group
        self.bytes += group.size
        if group.parent is not None:
            self._rows[group.parent].children += 1
            below = self._below.setdefault(group.parent, {})
            below.setdefault(group.start, {})[group.row] = group
        self._first.setdefault(self._key(group), []).append(group)
        self._useless.push(group)
        self._oldest.push(group)
        return group

    def take(self, group: Group) -> list[Group]:
        """Take out a group and all that hangs from it. Returns them, children before parents."""
        if group not in self:
            return []
        found = [group]
        for one in found:  # grows as it goes
            for children in self._below.get(one.row, {}).values():
                found += children.values()
        found.reverse()
        for one in found:
            self._take_one(one)
        return found

    def piece(self, slots: IntArray, at: int) -> tuple[Group, int, int] | None:
        """Whose slot `slots[at]` is, which of the group's tokens, and how many of the slots from there
        on are the group's next ones. None when the group is gone."""
        group = self.of_slot(int(slots[at]))
        if group is None:
            return None
        first = int(slots[at]) - group.base
        count = min(len(slots) - at, group.tokens - first)
        breaks = np.flatnonzero(np.diff(slots[at : at + count]) != 1)
        return group, first, int(breaks[0]) + 1 if len(breaks) else count

    def of_slot(self, slot: int) -> Group | None:
        """The group that has a slot, if there is one still."""
        at = bisect.bisect_right(self._bases, slot) - 1
        if at < 0:
            return None
        group = self._by_base[self._bases[at]]
        return group if slot < group.base + group.tokens else None

    def path(self, group: Group) -> IntArray:
        """Token ids of the whole prefix that ends with `group`."""
        parts = [group.ids]
        start, parent = group.start, group.parent
        while parent is not None:
            above = self._rows[parent]
            parts.append(above.ids[: start - above.start])
            start, parent = above.start, above.parent
        return np.concatenate(parts[::-1])

    def touch(self, group: Group, now: float) -> None:
        """It was used now."""
        group.hits = decayed(group, now) + 1
        group.used = now
        if group in self:
            self._useless.push(group)
            self._oldest.push(group)

    # -- along a prefix

    def chain(self, tag: str, ids: IntArray) -> list[tuple[Group, int]]:
        """The groups that hold a prefix, parents first, each with the token up to which it does:
        where the next one begins, or where it ends or parts from `ids`. Longest chain there is."""
        best: list[tuple[Group, int]] = []
        stack: list[tuple[list[tuple[Group, int]], Group]] = [
            ([], g) for g in self._at(tag, None, 0, ids)
        ]
        while stack:
            above, group = stack.pop()
            end = group.start + self._same(group, ids)
            chain = [*above, (group, end)]
            if not best or end > best[-1][1]:
                best = chain
            for start in self._below.get(group.row, ()):
                if group.start < start <= end:
                    cut = [*above, (group, start)]
                    stack += [(cut, g) for g in self._at(tag, group.row, start, ids)]
        return best

    def cover(self, tag: str, ids: IntArray) -> list[Found]:
        """`chain` as prefixes, starts and slots."""
        return [
            Found(
                ids[:end],
                group.start,
                np.arange(group.base, group.base + end - group.start, dtype=np.int32),
            )
            for group, end in self.chain(tag, ids)
        ]

    def before(self, tag: str, ids: IntArray, start: int) -> Group | None:
        """The group that holds token `start - 1` of exactly this prefix."""
        chain = self.chain(tag, ids[:start])
        return chain[-1][0] if chain and chain[-1][1] == start else None

    # -- leaving

    def victims(self, limit: int, max_age: float | None, now: float) -> list[Group]:
        """What should go: what was not used for `max_age` seconds, and what is too much for `limit`
        bytes. Leaves first; of those, fewest hits (which fade, with `HALF_LIFE`), then longest
        unused. Nothing is taken out by asking."""
        out: list[Group] = []
        gone: set[int] = set()
        size = self.bytes

        def go(group: Group) -> Group | None:
            """Its parent, when nothing hangs from that any more."""
            nonlocal size
            out.append(group)
            gone.add(group.row)
            size -= group.size
            if group.parent is None:
                return None
            left[group.parent] = left.get(group.parent, self._rows[group.parent].children) - 1
            return self._rows[group.parent] if left[group.parent] == 0 else None

        left: dict[int, int] = {}
        if max_age is not None:
            self._oldest.walk(gone, lambda g: now - g.used > max_age, go)
        self._useless.walk(gone, lambda g: size > limit, go)
        return out

    # -- inside

    def _take_one(self, group: Group) -> None:
        del self._rows[group.row]
        of_tag = self._tags[group.tag]
        del of_tag[group.row]
        if not of_tag:
            del self._tags[group.tag]
        del self._bases[bisect.bisect_left(self._bases, group.base)]
        del self._by_base[group.base]
        self.bytes -= group.size
        if group.parent is not None and group.parent in self._below:
            below = self._below[group.parent]
            del below[group.start][group.row]
            if not below[group.start]:
                del below[group.start]
            if not below:
                del self._below[group.parent]
        key = self._key(group)
        self._first[key].remove(group)
        if not self._first[key]:
            del self._first[key]
        above = self._rows.get(group.parent) if group.parent is not None else None
        if above is not None:
            above.children -= 1
            if above.children == 0:
                self._useless.push(above)
                self._oldest.push(above)

    def _key(self, group: Group) -> tuple[str, int | None, int, bytes]:
        first = group.ids[: self.page_size].tobytes()
        return group.tag, group.parent, group.start, first

    def _at(self, tag: str, parent: int | None, start: int, ids: IntArray) -> list[Group]:
        first = ids[start : start + self.page_size]
        if len(first) < self.page_size:
            return []
        return self._first.get((tag, parent, start, first.tobytes()), [])

    def _same(self, group: Group, ids: IntArray) -> int:
        """Tokens of a group that are those of `ids`, in whole pages."""
        n = min(group.tokens, len(ids) - group.start)
        differs = group.ids[:n] != ids[group.start : group.start + n]
        at = int(differs.argmax()) if n else 0
        same = at if n and differs[at] else n
        return same - same % self.page_size


class _Leaves:
    """Groups without children, lowest key first. Keys change: what is out of date is pushed anew
    and skipped when it is met."""

    def __init__(self, rows: dict[int, Group], key: Callable[[Group], tuple[float, ...]]) -> None:
        self._rows = rows
        self._key = key
        self._heap: list[tuple[tuple[float, ...], int, Group]] = []
        self._numbers = itertools.count()

    def push(self, group: Group) -> None:
        if group.children:
            return
        heapq.heappush(self._heap, (self._key(group), next(self._numbers), group))
        if len(self._heap) > 4 * len(self._rows) + 64:
            leaves = [g for g in self._rows.values() if not g.children]
            self._heap = [(self._key(g), next(self._numbers), g) for g in leaves]
            heapq.heapify(self._heap)

    def walk(
        self,
        gone: set[int],
        wanted: Callable[[Group], bool],
        go: Callable[[Group], Group | None],
    ) -> None:
        """Call `go` on leaves, lowest first, while they are `wanted`; it may return a parent that
        has become a leaf by that. Nothing is lost: what was popped is pushed back."""
        popped: dict[int, Group] = {}
        above: list[tuple[tuple[float, ...], int, Group]] = []
        while self._heap or above:
            from_above = bool(above) and (not self._heap or above[0] < self._heap[0])
            key, _, group = heapq.heappop(above if from_above else self._heap)
            if self._rows.get(group.row) is not group:
                continue
            if not from_above:
                if group.children or key != self._key(group):
                    continue
                popped[group.row] = group
            if group.row in gone:
                continue
            if not wanted(group):
                break
            parent = go(group)
            if parent is not None:
                heapq.heappush(above, (self._key(parent), next(self._numbers), parent))
        for group in popped.values():
            self.push(group)


def decayed(group: Group, now: float) -> float:
    """Hits, as they count now."""
    return float(group.hits * 0.5 ** (max(0.0, now - group.used) / HALF_LIFE))


def _use(group: Group) -> tuple[float, ...]:
    """Orders by faded hits, at whatever time one asks: `log2(hits * 0.5 ** ((t - used) / H))` less
    what is the same for all, `-t / H`."""
    score = math.log2(group.hits) + group.used / HALF_LIFE if group.hits > 0 else -math.inf
    return score, group.used
