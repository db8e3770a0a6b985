"""The index of groups in memory, beside the plain way to the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv.engine.kv.groups import Groups, decayed
from agentkv.engine.kv.store import Group


def naive_before(groups: Groups, tag: str, ids: np.ndarray, start: int) -> set[int]:
    """Every group that holds token `start - 1` of exactly this prefix."""
    return {
        g.row
        for g in groups.all(tag)
        if g.start < start <= g.end and np.array_equal(groups.path(g)[:start], ids[:start])
    }


def grown(seed: int, page: int, count: int) -> tuple[Groups, list[tuple[str, np.ndarray]]]:
    """Prefixes written as the lower tiers do: each from where what is known of it ends."""
    rng = np.random.default_rng(seed)
    groups, written = Groups(page), list[tuple[str, np.ndarray]]()
    for row in range(1, count + 1):
        tag = "ab"[int(rng.integers(2))]
        same = [ids for t, ids in written if t == tag]
        new = rng.integers(0, 3, int(rng.integers(1, 5)) * page).astype(np.int32)
        if same and rng.random() < 0.8:
            old = same[int(rng.integers(len(same)))]
            new = np.concatenate([old[: int(rng.integers(len(old) // page + 1)) * page], new])
        chain = groups.chain(tag, new)
        start = chain[-1][1] if chain else 0
        if start == len(new):
            continue
        parent = groups.before(tag, new, start)
        assert (parent is None) == (start == 0)
        above = None if parent is None else parent.row
        now = float(rng.integers(1000))
        groups.add(
            Group(row, tag, above, start, new[start:], str(row), 10, now, now, float(row % 3))
        )
        written.append((tag, new))
    return groups, written


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_prefixes_are_found_as_by_comparing_all(seed: int, page: int) -> None:
    groups, written = grown(seed, page, 60)
    rng = np.random.default_rng(seed + 100)
    for tag, ids in written:
        longer = np.concatenate([ids, rng.integers(0, 3, page).astype(np.int32)])
        assert groups.chain(tag, longer)[-1][1] >= len(ids)
        for start in range(page, len(ids) + 1, page):
            found = groups.before(tag, ids, start)
            assert found is not None and found.row in naive_before(groups, tag, ids, start)
        slots = np.concatenate([f.slots for f in groups.cover(tag, ids)])
        assert len(slots) == len(ids)
        for at, slot in enumerate(slots.tolist()):
            group = groups.of_slot(slot)
            assert group is not None and group.ids[slot - group.base] == ids[at]


@pytest.mark.parametrize("seed", range(6))
def test_victims_are_leaves_least_useful_first(seed: int) -> None:
    groups, _ = grown(seed, 1, 60)
    now = 2000.0
    rng = np.random.default_rng(seed)
    for group in groups.all():
        if rng.random() < 0.5:
            groups.touch(group, float(rng.integers(1000, 2000)))
    assert groups.victims(groups.bytes, None, now) == []
    while len(groups):
        leaves = [g for g in groups.all() if not g.children]
        (victim, *_) = groups.victims(groups.bytes - 1, None, now)
        best = min(leaves, key=lambda g: (decayed(g, now), g.used))
        assert victim in leaves
        assert decayed(victim, now) == pytest.approx(decayed(best, now))
        assert groups.take(victim) == [victim]
    assert groups.bytes == 0


def test_victims_cascade_and_nothing_is_lost_by_asking() -> None:
    groups, _ = grown(3, 1, 60)
    for _ in range(3):
        every = groups.victims(0, None, 2000.0)
        assert len(every) == len(groups) and len({g.row for g in every}) == len(groups)
        place = {g.row: n for n, g in enumerate(every)}
        assert all(g.parent is None or place[g.row] < place[g.parent] for g in every)
    old = groups.victims(1 << 40, 1500.0, 2000.0)
    assert {g.row for g in old} <= {g.row for g in groups.all() if g.used < 500}


def test_a_group_takes_along_what_hangs_from_it() -> None:
    groups, _ = grown(4, 1, 60)
    roots = [g for g in groups.all() if g.parent is None]
    total = 0
    for root in roots:
        gone = groups.take(root)
        assert gone[-1] is root and groups.take(root) == []
        total += len(gone)
    assert len(groups) == 0 and groups.bytes == 0 and total > len(roots)
