"""RadixTree and PageAllocator against a naive model: a dict from prefix to page."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentkv.engine.kv.eviction import POLICIES
from agentkv.engine.kv.pages import PageAllocator
from agentkv.engine.kv.tree import KEEPS, Keep, Namespace, Node, RadixTree

PAGES = 60
TOKENS = st.lists(st.integers(0, 2), min_size=0, max_size=24)
SPACE = st.sampled_from([(("salt", None),), (("salt", "a"),)])


class TreeMachine(RuleBasedStateMachine):
    """`live[(namespace, prefix in pages)]` is the page of the last page of that prefix."""

    @initialize(
        page=st.sampled_from([1, 2, 16]),
        policy=st.sampled_from(sorted(POLICIES)),
        floor=st.sampled_from([0, 5]),
        quota=st.sampled_from([None, 20]),
    )
    def start(self, page: int, policy: str, floor: int, quota: int | None) -> None:
        self.page = page
        self.tree = RadixTree(
            page,
            eviction=POLICIES[policy],
            tombstone_tokens=40 * page,
            floor=floor * page,
            quota=None if quota is None else quota * page,
        )
        self.kept: list[tuple[Keep, Node, Namespace, tuple[int, ...]]] = []
        self.pages = PageAllocator(PAGES)
        self.live: dict[tuple[Namespace, tuple[int, ...]], int] = {}
        self.seen: set[tuple[Namespace, tuple[int, ...]]] = set()
        self.held: list[tuple[Node, Namespace, tuple[int, ...], int]] = []
        self.stale: list[Node] = []
        self.stale_pages = 0

    def prefixes(self, ids: np.ndarray) -> list[tuple[int, ...]]:
        return [tuple(ids[: k + self.page].tolist()) for k in range(0, len(ids), self.page)]

    def text(self, tokens: list[int]) -> np.ndarray:
        return np.repeat(np.array(tokens, dtype=np.int32), self.page)

    def expected(self, space: Namespace, ids: np.ndarray) -> int:
        count = 0
        for prefix in self.prefixes(ids):
            if (space, prefix) not in self.live:
                break
            count += self.page
        return count

    def locked(self) -> set[tuple[Namespace, tuple[int, ...]]]:
        out = set()
        for _, space, prefix, _ in self.held:
            for k in range(self.page, len(prefix) + 1, self.page):
                out.add((space, prefix[:k]))
        return out

    @rule(space=SPACE, tokens=TOKENS)
    def match(self, space: Namespace, tokens: list[int]) -> None:
        ids = self.text(tokens)
        found = self.tree.match(space, ids)
        assert found.length == self.expected(space, ids)
        assert found.length <= found.known
        known = [p for p in self.prefixes(ids) if len(p) <= found.known]
        assert all((space, p) in self.seen for p in known), "a tombstone of what never was"

    @rule(space=SPACE, tokens=TOKENS)
    def lock(self, space: Namespace, tokens: list[int]) -> None:
        ids = self.text(tokens)
        found = self.tree.match(space, ids)
        node = self.tree.lock(space, found)
        slots = self.tree.slots(node)
        wanted = [self.live[space, p] for p in self.prefixes(ids[: found.length])]
        assert (slots[:: self.page] // self.page).tolist() == wanted
        self.held.append((node, space, tuple(ids[: found.length].tolist()), self.tree.generation))

    @rule(pick=st.integers(0, 99))
    def unlock(self, pick: int) -> None:
        if not self.held:
            return
        node, _, _, _ = self.held.pop(pick % len(self.held))
        assert len(self.tree.unlock(node)) == 0

    @rule(pick=st.integers(0, 99))
    def unlock_stale(self, pick: int) -> None:
        if not self.stale:
            return
        freed = self.tree.unlock(self.stale.pop(pick % len(self.stale)))
        self.pages.free(freed[:: self.page] // self.page)
        self.stale_pages -= len(freed) // self.page

    @rule(kind=st.sampled_from(KEEPS), space=SPACE, tokens=TOKENS)
    def keep(self, kind: Keep, space: Namespace, tokens: list[int]) -> None:
        ids = self.text(tokens)
        found = self.tree.match(space, ids)
        if found.length:
            node = self.tree.keep(kind, space, found)
            self.kept.append((kind, node, space, tuple(ids[: found.length].tolist())))

    @rule(pick=st.integers(0, 99))
    def unkeep(self, pick: int) -> None:
        if self.kept:
            kind, node, _, _ = self.kept.pop(pick % len(self.kept))
            self.tree.unkeep(kind, node)

    @rule(
        space=SPACE,
        tokens=TOKENS,
        cut=st.integers(0, 24),
        roles=st.tuples(*[st.integers(-1, 2)] * 2),
    )
    def mark(self, space: Namespace, tokens: list[int], cut: int, roles: tuple[int, int]) -> None:
        ids = self.text(tokens)
        at = min(cut * self.page, len(ids))
        self.tree.mark(space, ids, ((at, roles[0]), (len(ids), roles[1])))

    @rule(space=SPACE, tokens=TOKENS)
    def demote(self, space: Namespace, tokens: list[int]) -> None:
        found = self.tree.match(space, self.text(tokens))
        if found.length and found.offset == len(found.node.ids):
            assert 0 <= self.tree.demote(found.node) <= found.length

    @rule(space=SPACE, tokens=TOKENS.filter(bool))
    def insert(self, space: Namespace, tokens: list[int]) -> None:
        ids = self.text(tokens)
        got = self.pages.alloc(len(tokens))
        if got is None:
            return
        slots = (got[:, None] * self.page + np.arange(self.page)).reshape(-1).astype(np.int32)
        existed = self.tree.insert(space, ids, slots)
        assert existed == self.expected(space, ids)
        self.pages.free(got[: existed // self.page])
        for i, prefix in enumerate(self.prefixes(ids)):
            self.live.setdefault((space, prefix), int(got[i]))
            self.seen.add((space, prefix))

    @rule(count=st.integers(1, 12))
    def evict(self, count: int) -> None:
        locked = self.locked()
        free_to_go = sum(key not in locked for key in self.live)
        kept = self.prefixes_kept()
        held = {s: sum(key[0] == s for key in self.live) for s in self.tree.namespaces}
        freed = self.tree.evict(count * self.page)
        gone = set((freed[:: self.page] // self.page).tolist())
        if self.tree.floor == 0 and self.tree.quota is None:
            free = [k for k in self.live if k not in kept and k not in locked]
            loose = [k for k in free if not self.needed(k, kept | locked)]
            if len(gone) <= len(loose):
                taken = {k for k, page in self.live.items() if page in gone}
                assert not taken & kept, "a kept prefix left before others"
        floor = self.tree.floor // self.page
        for space, before in held.items():
            lost = sum(key[0] == space and page in gone for key, page in self.live.items())
            if lost and floor and before - lost < floor and self.tree.quota is None:
                spare = [s for s in held if s != space and self.count(s, gone) > floor]
                givers = [s for s in spare if self.loose_in(s, locked, gone)]
                assert not givers, "a floor was broken while others had pages to give"
        assert len(gone) == min(count, free_to_go)
        for key, page in list(self.live.items()):
            if page in gone:
                assert key not in locked, "a locked page was evicted"
                del self.live[key]
        for space, prefix in self.live:
            assert len(prefix) == self.page or (space, prefix[: -self.page]) in self.live, "orphan"
        self.pages.free(np.array(sorted(gone), dtype=np.int32))

    def prefixes_kept(self) -> set[tuple[Namespace, tuple[int, ...]]]:
        out = set()
        for _, _, space, prefix in self.kept:
            for k in range(self.page, len(prefix) + 1, self.page):
                out.add((space, prefix[:k]))
        return out

    def needed(self, key: Any, keys: set[Any]) -> bool:
        """Whether one of `keys` is below `key`, which cannot leave before it."""
        space, prefix = key
        return any(
            s == space and p[: len(prefix)] == prefix for s, p in keys if (s, p) in self.live
        )

    def count(self, space: Namespace, gone: set[int]) -> int:
        return sum(k[0] == space and page not in gone for k, page in self.live.items())

    def loose_in(self, space: Namespace, locked: set[Any], gone: set[int]) -> bool:
        return any(
            k[0] == space and page not in gone and k not in locked for k, page in self.live.items()
        )

    @rule()
    def flush(self) -> None:
        locked = self.locked()
        freed = self.tree.flush()
        assert len(freed) // self.page == sum(key not in locked for key in self.live)
        self.pages.free(freed[:: self.page] // self.page)
        self.stale_pages += len(locked)
        self.stale += [node for node, *_ in self.held]
        self.held = []
        self.kept = []
        self.live = {}

    @invariant()
    def conserved(self) -> None:
        if not hasattr(self, "tree"):
            return
        self.tree.check()
        page = self.page
        free, evictable = self.pages.free_pages, self.tree.evictable_tokens // page
        locked = self.tree.locked_tokens // page
        assert free + evictable + locked == PAGES, (free, evictable, locked)
        assert locked == len(self.locked() & set(self.live)) + self.stale_pages
        assert evictable + locked - self.stale_pages == len(self.live)
        kept = {(s, p) for s, p in self.prefixes_kept()}
        assert self.tree.tombstone_tokens <= 40 * page + page * len(kept)
        for kind in KEEPS:
            mine = set()
            for k, _, space, prefix in self.kept:
                if k == kind:
                    mine |= {(space, prefix[:n]) for n in range(page, len(prefix) + 1, page)}
            assert self.tree.kept_tokens[kind] == page * len(mine)


# 100 runs of 100 steps: 10,000 in all.
TreeMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=100, deadline=None)
TestTreeMachine = TreeMachine.TestCase
