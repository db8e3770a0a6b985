"""The tree as a cache: against the longest prefix ever seen, within its size, within its time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.bench.known import KnownPrefixes, distinct_tokens
from agentkv.engine.types import RenderedPrompt
from agentkv.trace.caches.radix import POLICIES, RadixCache
from agentkv.trace.call import Call, Where
from agentkv.trace.render import Rendered

NS = ()


def asked(cache: RadixCache, ids: Sequence[int], answer: Sequence[int] = (), *, time: float | None = None,
          model: str = "") -> int:  # fmt: skip
    prompt = np.array(ids, dtype=np.int32)
    rendered = Rendered(
        RenderedPrompt(token_ids=prompt), (), np.array(answer, dtype=np.int32), tokens=len(prompt)
    )
    hit = cache.call(Call(Where("l", 1), time=time, model=model), rendered, NS)
    assert 0 <= hit.cached <= max(0, len(prompt) - 1)
    assert hit.cached <= hit.known <= len(prompt)
    return hit.cached


ids = st.lists(st.integers(0, 1), min_size=1, max_size=24)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(ids, st.lists(st.integers(0, 1), max_size=3)), max_size=14),
       st.sampled_from([1, 16, 4]))  # fmt: skip
def test_unlimited_serves_the_longest_prefix_of_any_earlier_call(
    calls: list[tuple[list[int], list[int]]], page: int
) -> None:
    cache, known = RadixCache("x", page_size=page), KnownPrefixes()
    for prompt, answer in calls:
        expected = known.longest(np.array(prompt, dtype=np.int32), page)
        assert asked(cache, prompt, answer) == expected
        known.add(np.array(prompt, dtype=np.int32), answer)
    assert not cache.capped and cache.evicted == 0
    for tree in cache._trees.values():
        tree.check()
        assert tree.locked_tokens == 0


@settings(deadline=None, max_examples=100)
@given(st.lists(ids, max_size=20), st.sampled_from(sorted(POLICIES)), st.integers(1, 60),
       st.sampled_from([1, 4]))  # fmt: skip
def test_a_sized_cache_stays_within_its_size_and_below_the_ceiling(
    prompts: list[list[int]], policy: str, size: int, page: int
) -> None:
    cache = RadixCache("x", page_size=page, size=size, policy=policy)
    free = RadixCache("x", page_size=page)
    for prompt in prompts:
        assert asked(cache, prompt) <= asked(free, prompt)
        assert cache.held <= size
    for tree in cache._trees.values():
        tree.check()


def test_the_size_of_an_unlimited_cache_is_what_is_distinct() -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 2, 40).astype(np.int32) for _ in range(50)]
    cache = RadixCache("x")
    for prompt in prompts:
        asked(cache, prompt.tolist())
    assert cache.held == distinct_tokens(prompts)


def test_an_unlimited_cache_says_when_it_had_to_forget() -> None:
    cache = RadixCache("x", held_ids=100)
    for n in range(4):
        assert not cache.capped
        asked(cache, [n, *range(30)])
    assert cache.capped and cache.held <= 100
    assert asked(cache, [0, *range(30)]) < 30  # the oldest went
    assert asked(cache, [3, *range(30)]) == 30


def test_a_prompt_longer_than_the_cache_leaves_it_alone() -> None:
    cache = RadixCache("x", size=20)
    asked(cache, [7] * 10)
    asked(cache, list(range(100, 150)))
    assert asked(cache, [7] * 10) == 9


def test_a_burst_of_single_prompts_does_not_flush_what_many_used() -> None:
    rates = {}
    for policy in ("lru", "hot", "lfu"):
        cache = RadixCache("x", size=400, policy=policy)
        for n in range(50):
            asked(cache, [*range(200), 1000 + n])
        for n in range(40):
            asked(cache, [5000 + 100 * n + i for i in range(30)])
        rates[policy] = asked(cache, [*range(200), 1])
    assert rates == {"lru": 0, "hot": 200, "lfu": 200}


def test_each_prefix_has_a_time_to_live_of_its_own_which_use_renews() -> None:
    cache = RadixCache("x", policy="lru", seconds=100)
    a, b = [1] * 50, [2] * 50
    asked(cache, a, time=0)
    asked(cache, b, time=60)
    assert asked(cache, a, time=90) == 49  # renewed until 190
    assert asked(cache, b, time=161) == 0  # 101 s after its use, and written anew
    assert asked(cache, a, time=180) == 49
    assert asked(cache, b, time=200) == 49
    assert asked(cache, a, time=281) == 0
    # Another log that starts earlier, and calls without a time: nothing expires for them.
    assert asked(cache, a, time=5) == 49
    assert asked(cache, b) == 49


def test_a_shared_head_lives_as_long_as_any_of_its_users() -> None:
    cache = RadixCache("x", policy="lru", seconds=100)
    for n in range(5):
        asked(cache, [*range(40), 900 + n], time=n * 80.0)
    assert asked(cache, [*range(40), 904], time=330) == 40
    cached = asked(cache, [*range(40), 901], time=331)
    assert cached == 40  # all but what only the second call had


def test_minimum_by_model_and_steps() -> None:
    cache = RadixCache("x", policy="lru", least=lambda m: 64 if m == "big" else 16, step=8)
    asked(cache, range(100))
    assert asked(cache, [*range(15), 500]) == 0
    assert asked(cache, [*range(16), 501]) == 16
    assert asked(cache, [*range(31), 502]) == 24
    assert asked(cache, [*range(63), 503], model="big") == 0
    assert asked(cache, [*range(75), 504], model="big") == 72


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no policy is called 'fifo'"):
        RadixCache("x", policy="fifo")
    with pytest.raises(ValueError, match="needs the policy lru"):
        RadixCache("x", policy="lfu", seconds=5)


def test_memory_can_be_given_back_and_counts_stay() -> None:
    cache = RadixCache("x", size=20)
    for n in range(5):
        asked(cache, [n] * 15)
    evicted = cache.evicted
    assert evicted == 60 - (20 - 15)
    cache.release()
    assert cache.held == 0 and cache.evicted == evicted
    assert not cache.ideal and RadixCache("x").ideal and not RadixCache("x", page_size=16).ideal
