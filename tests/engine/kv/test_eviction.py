"""What leaves first: sharing, roles, depth, quotas."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv.engine.kv.eviction import HALF, MOST_HOT, POLICIES, Role, marks_of
from agentkv.engine.kv.tree import Namespace, Node, RadixTree
from agentkv.engine.types import IntArray, Span

SPACE: Namespace = (("salt", None),)
OTHER: Namespace = (("salt", "b"),)


class Cache:
    """A tree of a fixed size, used as the engine uses it: match, lock, evict, insert, unlock."""

    def __init__(self, size: int, policy: str, **limits: int) -> None:
        self.size = size
        self.tree = RadixTree(1, eviction=POLICIES[policy], tombstone_tokens=8 * size, **limits)
        self._next = 0

    def call(self, ids: IntArray, space: Namespace = SPACE, marks: object = ()) -> int:
        """Tokens that were there."""
        found = self.tree.match(space, ids)
        node = self.tree.lock(space, found)
        free = self.size - self.tree.evictable_tokens - self.tree.locked_tokens
        missing = len(ids) - found.length
        if missing > free:
            self.tree.evict(missing - free)
        slots = np.arange(self._next, self._next + len(ids), dtype=np.int32)
        self._next += len(ids)
        self.tree.insert(space, ids, slots)
        if marks:
            self.tree.mark(space, ids, marks)  # type: ignore[arg-type]
        self.tree.unlock(node)
        self.tree.check()
        return found.length


def text(seed: int, n: int) -> IntArray:
    return np.random.default_rng(seed).integers(0, 1 << 30, n).astype(np.int32)


@pytest.mark.parametrize(
    ("policy", "keeps"), [("lru", 0), ("hot", 100), ("role", 100), ("cost", 100)]
)
def test_a_burst_of_one_time_prompts_and_a_hot_prefix(policy: str, keeps: int) -> None:
    cache = Cache(2000, policy)
    hot = text(0, 100)
    for call in range(60):
        cache.call(np.concatenate([hot, text(1000 + call, 20)]))
    for call in range(50):
        cache.call(text(5000 + call, 300))
    assert cache.call(np.concatenate([hot, text(1, 20)])) == keeps


@pytest.mark.parametrize("policy", ["hot", "role", "cost"])
def test_what_nobody_uses_any_more_leaves_in_the_end(policy: str) -> None:
    cache = Cache(2000, policy)
    hot = text(0, 100)
    marks = ((100, int(Role.CORE)), (120, int(Role.TAIL)))
    for call in range(500):
        cache.call(np.concatenate([hot, text(1000 + call, 20)]), marks=marks)
    for call in range(400):
        cache.call(text(5000 + call, 300))
    assert cache.tree.match(SPACE, hot).length == 0


def test_turns_of_one_conversation_are_no_shares() -> None:
    cache = Cache(100_000, "hot")
    ids = text(0, 50)
    for turn in range(20):
        cache.call(ids)
        ids = np.concatenate([ids, text(turn + 1, 50)])
    first = cache.tree.match(SPACE, ids[:50]).node
    assert first.hits >= 19
    assert first.shares == 0
    # Another conversation that begins alike is one.
    cache.call(np.concatenate([ids[:50], text(99, 50)]))
    assert cache.tree.match(SPACE, ids[:50]).node.shares == 1


def test_computing_again_what_was_evicted_is_no_share() -> None:
    cache = Cache(100_000, "hot")
    ids = text(0, 100)
    cache.call(ids)
    cache.tree.evict(50)
    assert cache.call(ids) == 50
    assert cache.tree.match(SPACE, ids[:50]).node.shares == 0


@pytest.mark.parametrize(("policy", "first"), [("lru", "core"), ("role", "tail")])
def test_tools_outlive_younger_tails(policy: str, first: str) -> None:
    """Two calls: the older prefix is tools that were used once, the younger one a question."""
    cache = Cache(1000, policy)
    tools, question = text(0, 100), text(1, 100)
    cache.call(tools, marks=((100, int(Role.CORE)),))
    cache.call(question, marks=((100, int(Role.TAIL)),))
    cache.tree.evict(100)
    gone = tools if first == "core" else question
    assert cache.tree.match(SPACE, gone).length == 0
    assert cache.tree.evictable_tokens == 100


def test_a_tail_leaves_without_what_is_before_it() -> None:
    cache = Cache(1000, "role")
    ids = text(0, 100)
    cache.call(ids, marks=((60, int(Role.CORE)), (100, int(Role.TAIL))))
    cache.call(text(1, 100))
    cache.tree.evict(40)
    assert cache.tree.match(SPACE, ids).length == 60


def test_the_highest_role_that_anybody_named_counts() -> None:
    cache = Cache(1000, "role")
    ids = text(0, 100)
    cache.call(ids, marks=((100, int(Role.TAIL)),))
    cache.call(np.concatenate([ids, text(1, 10)]), marks=((100, int(Role.PLAIN)), (110, -1)))
    assert cache.tree.match(SPACE, ids).node.role == Role.PLAIN
    cache.call(np.concatenate([ids, text(2, 10)]), marks=((100, int(Role.CORE)), (110, -1)))
    cache.call(np.concatenate([ids, text(3, 10)]), marks=((110, int(Role.TAIL)),))
    assert cache.tree.match(SPACE, ids).node.role == Role.CORE


def node(**values: int) -> Node:
    out = Node(np.arange(1, dtype=np.int32), None, None, 0)
    for name, value in values.items():
        setattr(out, name, value)
    return out


def test_each_policy_adds_a_bounded_bonus() -> None:
    plain = node(last_use=100)
    assert [POLICIES[p](plain) for p in ("lru", "hot", "role", "cost")] == [100.0] * 4
    shared = node(last_use=100, shares=3)
    assert POLICIES["hot"](shared) == 100 + 2 * HALF
    assert POLICIES["hot"](node(last_use=100, shares=1 << 40)) == 100 + MOST_HOT
    assert POLICIES["role"](node(last_use=100, role=Role.CORE)) == 356
    assert POLICIES["role"](node(last_use=100, role=Role.TAIL)) == 84
    assert POLICIES["role"](node(last_use=100, role=Role.TAIL, shares=1)) == 100 + HALF
    assert POLICIES["cost"](node(last_use=100, start=4096)) == 100 + HALF


def test_roles_of_a_rendered_prompt() -> None:
    kinds = ["template", "tools", "instructions", "template", "history", "template", "question"]
    spans = [Span(name=str(i), kind=k, start=10 * i, end=10 * i + 10) for i, k in enumerate(kinds)]
    assert marks_of(spans) == ((10, 0), (40, 2), (60, 0), (70, -1))
    assert marks_of(()) == ()


# -- between namespaces


def test_a_flood_in_one_namespace_leaves_the_others_their_floor() -> None:
    cache = Cache(1000, "lru", floor=200)
    mine = text(0, 300)
    cache.call(mine, OTHER)
    for call in range(40):
        cache.call(text(100 + call, 100))
    assert cache.tree.match(OTHER, mine).length == 200
    without = Cache(1000, "lru")
    without.call(mine, OTHER)
    for call in range(40):
        without.call(text(100 + call, 100))
    assert without.tree.match(OTHER, mine).length == 0


def test_a_floor_yields_when_nothing_else_is_left() -> None:
    cache = Cache(1000, "lru", floor=600)
    cache.call(text(0, 600), OTHER)
    assert cache.call(text(1, 900)) == 0
    assert cache.tree.evictable_tokens == 1000


def test_who_is_over_the_quota_is_evicted_first() -> None:
    cache = Cache(1000, "lru", quota=300)
    mine = text(0, 250)
    cache.call(mine, OTHER)
    for call in range(40):
        cache.call(text(100 + call, 100))
    assert cache.tree.match(OTHER, mine).length == 250
    root = cache.tree.root(SPACE)
    assert root is not None and root.live > 300, "memory that nobody wants is not left empty"
