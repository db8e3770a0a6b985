"""Pins and pauses: kept to the last, for a while, within a budget, and never in anybody's way."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.sched.request import Request
from agentkv.engine.types import IntArray

SPACE: Namespace = (("salt", None),)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A cache that runs one request after the other."""

    def __init__(self, pages: int = 40, page: int = 1, pins: int = 20, pauses: int = 20) -> None:
        self.clock = Clock()
        self.page = page
        self.cache = KVCache(
            pages, page, pin_tokens=pins * page, pause_tokens=pauses * page, clock=self.clock
        )
        self.tree = self.cache.tree

    def text(self, seed: int, pages: int) -> IntArray:
        return np.random.default_rng(seed).integers(0, 1 << 30, pages * self.page).astype(np.int32)

    def call(self, ids: IntArray) -> int:
        request = Request("r", ids, max_new=0, namespace=SPACE)
        self.cache.open(request)
        assert self.cache.grow(request, len(ids))
        request.committed = len(ids)
        self.cache.publish(request)
        self.cache.release(request)
        self.cache.check(deep=True)
        return request.cached_tokens or 0

    def live(self, ids: IntArray) -> int:
        return self.tree.match(SPACE, ids).length


@pytest.fixture(params=[1, 16])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(page=request.param)


def test_a_pinned_prefix_outlives_everything_that_is_not(bench: Bench) -> None:
    kept, lost = bench.text(0, 10), bench.text(1, 10)
    bench.call(kept)
    bench.call(lost)
    bench.cache.pins.add("pins", SPACE, kept, 60)
    for seed in range(2, 30):
        bench.call(bench.text(seed, 10))
    assert bench.live(kept) == len(kept)
    assert bench.live(lost) == 0


def test_a_pin_yields_to_a_request_that_would_not_fit(bench: Bench) -> None:
    kept = bench.text(0, 10)
    bench.call(kept)
    bench.cache.pins.add("pins", SPACE, kept, 60)
    whole = bench.text(1, 40)
    bench.call(whole)
    assert bench.live(whole) == len(whole)
    assert bench.live(kept) == 0
    # Its ids are still known, so it is kept again once it was computed again.
    bench.call(kept)
    for seed in range(2, 30):
        bench.call(bench.text(seed, 10))
    assert bench.live(kept) == len(kept)


def test_a_pin_ends_at_its_time(bench: Bench) -> None:
    kept = bench.text(0, 10)
    bench.call(kept)
    pin = bench.cache.pins.add("pins", SPACE, kept, 60)
    bench.clock.now += 59
    assert [p.id for p in bench.cache.pins.all("pins")] == [pin.id]
    bench.clock.now += 2
    assert bench.cache.pins.all("pins") == ()
    assert bench.tree.kept_tokens["pins"] == 0
    for seed in range(2, 30):
        bench.call(bench.text(seed, 10))
    assert bench.live(kept) == 0


def test_time_is_looked_at_when_room_is_made(bench: Bench) -> None:
    kept = bench.text(0, 10)
    bench.call(kept)
    bench.cache.pins.add("pins", SPACE, kept, 60)
    bench.clock.now += 61
    for seed in range(2, 30):
        bench.call(bench.text(seed, 10))
    assert bench.live(kept) == 0


def test_pinning_again_prolongs_and_counts_once(bench: Bench) -> None:
    kept = bench.text(0, 10)
    bench.call(kept)
    first = bench.cache.pins.add("pins", SPACE, kept, 60)
    bench.clock.now += 50
    second = bench.cache.pins.add("pins", SPACE, kept, 60)
    assert second.id == first.id
    assert bench.tree.kept_tokens["pins"] == len(kept)
    bench.clock.now += 20
    assert bench.cache.pins.left(second) == pytest.approx(40)
    assert bench.cache.pins.drop("pins", second.id)
    assert not bench.cache.pins.drop("pins", second.id)
    assert bench.tree.kept_tokens["pins"] == 0
    bench.tree.check()


def test_over_the_budget_the_oldest_decay(bench: Bench) -> None:
    texts = [bench.text(seed, 8) for seed in range(3)]
    for ids in texts:
        bench.call(ids)
    pins = [bench.cache.pins.add("pins", SPACE, ids, 60) for ids in texts]
    assert [p.id for p in bench.cache.pins.all("pins")] == [p.id for p in pins[1:]]
    assert bench.cache.pins.decayed["pins"] == 1
    assert bench.tree.kept_tokens["pins"] == 2 * len(texts[0])


def test_a_shared_beginning_counts_once(bench: Bench) -> None:
    shared = bench.text(0, 10)
    longer = [np.concatenate([shared, bench.text(seed, 4)]) for seed in (1, 2)]
    for ids in longer:
        bench.call(ids)
        bench.cache.pins.add("pins", SPACE, ids, 60)
    assert len(bench.cache.pins.all("pins")) == 2
    assert bench.tree.kept_tokens["pins"] == 18 * bench.page


def test_what_is_larger_than_the_budget_is_refused(bench: Bench) -> None:
    ids = bench.text(0, 21)
    bench.call(ids)
    with pytest.raises(InvalidRequest, match="more than all pins may keep"):
        bench.cache.pins.add("pins", SPACE, ids, 60)
    with pytest.raises(InvalidRequest, match="compute it first"):
        bench.cache.pins.add("pins", SPACE, bench.text(9, 5), 60)
    assert bench.tree.kept_tokens["pins"] == 0


def test_pins_and_pauses_have_budgets_of_their_own(bench: Bench) -> None:
    a, b = bench.text(0, 15), bench.text(1, 15)
    bench.call(a)
    bench.call(b)
    bench.cache.pins.add("pins", SPACE, a, 60)
    bench.cache.pins.add("pauses", SPACE, b, 60)
    assert bench.tree.kept_tokens == {"pins": len(a), "pauses": len(b)}
    # A pause goes before a pin.
    bench.call(bench.text(2, 20))
    assert bench.live(a) == len(a)
    assert bench.live(b) < len(b)


def test_a_flush_ends_all(bench: Bench) -> None:
    ids = bench.text(0, 10)
    bench.call(ids)
    bench.cache.pins.add("pins", SPACE, ids, 60)
    bench.cache.flush()
    assert bench.cache.pins.all("pins") == ()
    assert bench.tree.kept_tokens["pins"] == 0
    bench.call(ids)
    assert not bench.tree.match(SPACE, ids).node.pins
    bench.cache.check(deep=True)
