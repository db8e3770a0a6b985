"""RadixTree: matching, splitting, locking, eviction, flush, at the edges of pages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.eviction import EvictionKey, hot, lru
from agentkv.engine.kv.tree import RadixTree, TreeError
from agentkv.engine.sched.request import Request

NS = (("salt", None),)


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def run(start: int, count: int) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.int32)


@pytest.mark.parametrize("page", [1, 16, 32, 64])
@pytest.mark.parametrize("delta", [-1, 0, 1])
@pytest.mark.parametrize("stored_pages", [1, 2, 3])
def test_match_is_cut_to_whole_pages(page: int, delta: int, stored_pages: int) -> None:
    tree = RadixTree(page)
    stored = stored_pages * page
    text = run(100, stored + 2 * page)
    tree.insert(NS, text[:stored], run(0, stored))
    asked = max(0, stored + delta)
    found = tree.match(NS, text[:asked])
    assert found.length == min(asked, stored) // page * page
    tree.check()
    node = tree.lock(NS, found)
    assert np.array_equal(tree.slots(node), run(0, found.length))
    tree.check()
    tree.unlock(node)
    tree.check()


def test_match_changes_nothing() -> None:
    tree = RadixTree(1)
    tree.insert(NS, ids(1, 2, 3, 4), run(0, 4))
    before = (tree.version, [n.ids.tolist() for n in tree.nodes()])
    assert tree.match(NS, ids(1, 2, 9)).length == 2
    assert (tree.version, [n.ids.tolist() for n in tree.nodes()]) == before


def test_insert_reports_what_was_there_and_takes_the_rest() -> None:
    tree = RadixTree(1)
    assert tree.insert(NS, ids(1, 2, 3), run(10, 3)) == 0
    assert tree.insert(NS, ids(1, 2, 7, 8), run(20, 4)) == 2
    node = tree.lock(NS, tree.match(NS, ids(1, 2, 7, 8)))
    assert tree.slots(node).tolist() == [10, 11, 22, 23]
    assert tree.evictable_tokens + tree.locked_tokens == 5


def test_split_keeps_locks_clock_and_hits_on_both_halves_whatever_the_unlock_order() -> None:
    for first_out in (0, 1):
        tree = RadixTree(1)
        tree.insert(NS, ids(1, 2, 3, 4, 5, 6), run(0, 6))
        whole = tree.lock(NS, tree.match(NS, ids(1, 2, 3, 4, 5, 6)))
        half = tree.lock(NS, tree.match(NS, ids(1, 2, 3)))
        assert half is not whole and half is whole.parent
        assert (half.locks, whole.locks) == (2, 1)
        assert half.hits == 2 and whole.hits == 1
        assert (tree.locked_tokens, tree.evictable_tokens) == (6, 0)
        tree.check()
        handles = [whole, half]
        tree.unlock(handles[first_out])
        tree.check()
        assert tree.locked_tokens == (3 if first_out == 0 else 6)
        tree.unlock(handles[1 - first_out])
        tree.check()
        assert (tree.locked_tokens, tree.evictable_tokens) == (0, 6)
        with pytest.raises(TreeError):
            tree.unlock(half)


def test_a_partial_hit_counts_as_use() -> None:
    tree = RadixTree(1, eviction=lru)
    tree.insert(NS, ids(1, 2, 3), run(0, 3))
    tree.insert(NS, ids(7, 8, 9), run(3, 3))
    tree.unlock(tree.lock(NS, tree.match(NS, ids(1, 2, 5))))
    # 3 is the tail that the partial hit did not use; 7 8 9 is older than 1 2 now.
    freed = tree.evict(4)
    assert set(freed.tolist()) == {2, 3, 4, 5}
    assert tree.match(NS, ids(1, 2, 3)).length == 2


def test_eviction_takes_leaves_first_and_no_more_than_asked() -> None:
    """B011: a prefix loses its tail, never a middle whose descendants could not be reached."""
    for page in (1, 16):
        tree = RadixTree(page)
        text = run(0, 3 * page)
        tree.insert(NS, text, run(0, 3 * page))
        for _ in range(200):
            freed = tree.evict(page)
            assert freed.tolist() == run(2 * page, page).tolist()
            found = tree.match(NS, text)
            assert (found.length, found.known) == (2 * page, 3 * page)
            tree.check()
            assert tree.insert(NS, text, np.concatenate([run(0, 2 * page), freed])) == 2 * page
            assert tree.match(NS, text).length == 3 * page


def test_locked_paths_survive_any_eviction() -> None:
    tree = RadixTree(1)
    tree.insert(NS, ids(1, 2, 3, 4), run(0, 4))
    tree.insert(NS, ids(1, 2, 8, 9), run(4, 4))
    held = tree.lock(NS, tree.match(NS, ids(1, 2, 3)))
    freed = tree.evict(100)
    assert set(freed.tolist()) == {3, 6, 7}
    assert tree.slots(held).tolist() == [0, 1, 2]
    tree.check()


def test_evicted_and_never_seen_differ() -> None:
    tree = RadixTree(1)
    tree.insert(NS, ids(1, 2, 3, 4, 5, 6), run(0, 6))
    tree.insert(NS, ids(1, 2, 3, 9), np.concatenate([run(0, 3), run(6, 1)]))
    tree.evict(100)
    assert tree.match(NS, ids(1, 2, 3, 4, 5, 7)).known == 5
    assert tree.match(NS, ids(1, 2, 3, 9, 9)).known == 4
    assert tree.match(NS, ids(5, 5)).known == 0
    assert tree.match(NS, ids(1, 2)).length == 0
    tree.check()
    # Coming back revives the ids that were remembered, with new slots.
    assert tree.insert(NS, ids(1, 2, 3, 4), run(20, 4)) == 0
    found = tree.match(NS, ids(1, 2, 3, 4, 5, 6))
    assert (found.length, found.known) == (4, 6)
    tree.check()


def test_tombstones_are_bounded() -> None:
    tree = RadixTree(1, tombstone_tokens=100)
    for start in range(0, 5000, 10):
        tree.insert(NS, run(start, 10), run(0, 10))
        tree.evict(10)
        assert tree.tombstone_tokens <= 100
        tree.check()
    assert tree.match(NS, run(4990, 10)).known == 10
    assert tree.match(NS, run(0, 10)).known == 0


def test_namespaces_never_meet() -> None:
    """L: tagged tuples, so that no two spellings of a namespace can collide."""
    spaces = [
        (("adapter", "x"),),
        (("salt", "x"),),
        (("key", "x"),),
        (("a", "bc"),),
        (("ab", "c"),),
        (("org", "1"), ("user", "2345")),
        (("org", "12345"), ("user", "")),
    ]
    tree = RadixTree(1)
    for i, space in enumerate(spaces):
        assert tree.insert(space, ids(1, 2, 3), run(10 * i, 3)) == 0
    for i, space in enumerate(spaces):
        node = tree.lock(space, tree.match(space, ids(1, 2, 3)))
        assert tree.slots(node).tolist() == run(10 * i, 3).tolist()


def test_an_unused_namespace_leaves_nothing_behind() -> None:
    tree = RadixTree(1)
    for i in range(50):
        space = (("salt", str(i)),)
        tree.unlock(tree.lock(space, tree.match(space, ids(1, 2))))
    assert tree.namespaces == ()


def test_flush_lets_holders_keep_their_slots_until_they_unlock() -> None:
    tree = RadixTree(1)
    tree.insert(NS, ids(1, 2, 3, 4), run(0, 4))
    tree.insert(NS, ids(8, 9), run(4, 2))
    held = tree.lock(NS, tree.match(NS, ids(1, 2)))
    old = tree.match(NS, ids(8, 9))
    assert sorted(tree.flush().tolist()) == [2, 3, 4, 5]
    assert (tree.evictable_tokens, tree.locked_tokens) == (0, 2)
    assert tree.match(NS, ids(1, 2, 3, 4)).known == 0
    with pytest.raises(TreeError):
        tree.lock(NS, old)
    assert tree.insert(NS, ids(1, 2), run(7, 2)) == 0
    assert sorted(tree.unlock(held).tolist()) == [0, 1]
    assert (tree.evictable_tokens, tree.locked_tokens) == (2, 0)
    tree.check()


def test_a_burst_of_one_time_prompts_does_not_flush_a_hot_prefix() -> None:
    """B014, with plain LRU beside it."""

    def survivors(**options: object) -> int:
        tree = RadixTree(1, **options)  # type: ignore[arg-type]
        hot, free = run(0, 100), list(range(500))

        def call(text: np.ndarray) -> None:
            handle = tree.lock(NS, tree.match(NS, text, len(text) - 1))
            missing = len(text) - len(tree.slots(handle))
            if missing > len(free):
                free.extend(tree.evict(missing - len(free)).tolist())
            slots = np.concatenate([tree.slots(handle), [free.pop() for _ in range(missing)]])
            existed = tree.insert(NS, text, slots.astype(np.int32))
            free.extend(slots[len(tree.slots(handle)) : existed].tolist())
            tree.unlock(handle)

        for i in range(200):
            call(np.concatenate([hot, ids(1000 + i)]))
        for i in range(50):
            call(run(10_000 + 1000 * i, 100))
        return tree.match(NS, hot).length

    assert survivors() == 100
    assert survivors(eviction=lru) < 100


def test_eviction_order_does_not_need_a_walk() -> None:
    """Heap entries that are out of date are skipped, and their number stays bounded."""
    tree = RadixTree(1, eviction=lru)
    for i in range(200):
        tree.insert(NS, run(1000 * i, 3), run(3 * i, 3))
    for round_ in range(50):
        for i in range(200):
            tree.unlock(tree.lock(NS, tree.match(NS, run(1000 * i, 3))))
        assert len(tree._leaves) <= 1024 + 8 * 200, round_
    assert tree.evict(3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_bonus_for_hot_prefixes_never_costs_hits_on_recorded_traffic(
    traces: Path, share: float
) -> None:
    """B014: three hot system prompts among one-time requests; 512-token blocks become 8 tokens."""
    lines = (traces / "hash" / "mooncake_toolagent_excerpt74.jsonl").read_text().splitlines()
    blocks = [json.loads(line)["hash_ids"] for line in lines]
    prompts = [
        (np.array(b, dtype=np.int32)[:, None] * 8 + np.arange(8, dtype=np.int32)).reshape(-1)
        for b in blocks
    ]
    distinct = 8 * len({b for row in blocks for b in row})
    pool = max(int(share * distinct), max(len(p) for p in prompts))

    def hits(eviction: EvictionKey) -> int:
        cache = KVCache(pool, eviction=eviction)
        total = 0
        for i, prompt in enumerate(prompts):
            request = Request(str(i), prompt.astype(np.int32), max_new=0)
            cache.open(request)
            total += request.cached_tokens or 0
            assert cache.grow(request, len(prompt))
            request.committed = len(prompt)
            cache.release(request)
            cache.check(deep=True)
        return total

    assert hits(hot) >= hits(lru) > 0
