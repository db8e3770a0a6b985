"""Pins, pauses, releases and prefetches on a real engine: what stays, and that no answer changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agentkv.engine import Engine, SamplingParams
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.types import RenderedPrompt, Span, as_ids

MakeEngine = Callable[..., Engine]
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, logprobs=1)
POOL = 512


def prompt(seed: int, n: int) -> list[int]:
    return np.random.default_rng(seed).integers(10, 200, n).tolist()


def crowd(engine: Engine, calls: int = 8) -> None:
    """Prompts of no use to anybody, several times the pool."""
    for seed in range(900, 900 + calls):
        engine.generate(prompt(seed, 200), SamplingParams(max_tokens=1, temperature=0.0))


def answer(out: Any) -> tuple[Any, ...]:
    return tuple((t.token_id, t.logprob) for t in out.choices[0].logprobs)


def test_a_pin_computes_its_prefix_and_keeps_it(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL)
    kept = prompt(1, 80)
    pin = engine.pin(kept, ttl=60)
    assert (pin.tokens, pin.seconds) == (80, pytest.approx(60, abs=5))
    cold = answer(make_engine(prefix_cache=False).generate([*kept, 5, 6], GREEDY))
    crowd(engine)
    out = engine.generate([*kept, 5, 6], GREEDY)
    assert out.cache.cached_tokens == 80
    assert answer(out) == cold
    assert engine.stats()["pinned_tokens"] == 80
    assert engine.unpin(pin.id)
    assert not engine.unpin(pin.id)
    crowd(engine, 12)
    assert engine.generate([*kept, 5, 6], GREEDY).cache.cached_tokens < 80
    engine.check()


def test_pins_of_another_salt_are_not_touched(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL)
    pin = engine.pin(prompt(1, 40), salt="a")
    assert not engine.unpin(pin.id, of=lambda salt: salt == "b")
    assert engine.pins(of=lambda salt: salt == "b") == []
    assert [p.id for p in engine.pins()] == [pin.id]
    assert engine.unpin(pin.id, of=lambda salt: salt == "a")


def test_a_call_that_asks_for_it_pins_its_lasting_segments(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL)
    ids = prompt(1, 100)
    kinds = [("tools", 40), ("instructions", 64), ("question", 100)]
    spans, start = [], 0
    for kind, end in kinds:
        spans.append(Span(name=kind, kind=kind, start=start, end=end))
        start = end
    asked = RenderedPrompt(token_ids=as_ids(ids), spans=tuple(spans))
    engine.generate(asked, GREEDY, pin=60)
    (pin,) = engine.pins()
    assert pin.tokens == 64
    crowd(engine)
    assert engine.generate([*ids[:64], 1, 2], GREEDY).cache.cached_tokens == 64


def test_a_pin_that_cannot_be_had_does_not_fail_its_call(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL, pin_share=0.1)
    ids = prompt(1, 100)
    span = Span(name="tools", kind="tools", start=0, end=100)
    out = engine.generate(RenderedPrompt(token_ids=as_ids(ids), spans=(span,)), GREEDY, pin=60)
    assert out.completion_tokens == 8
    assert engine.stats()["refused_pins_total"] == 1
    with pytest.raises(InvalidRequest, match="more than all pins may keep"):
        engine.pin(ids)


@pytest.mark.parametrize("ttl", [0, -1, 1e9, float("nan")])
def test_a_time_that_makes_no_sense(make_engine: MakeEngine, ttl: float) -> None:
    engine = make_engine(pool_tokens=POOL)
    with pytest.raises(InvalidRequest, match="must be above 0"):
        engine.pin(prompt(1, 20), ttl=ttl)
    with pytest.raises(InvalidRequest, match="must be above 0"):
        engine.generate(prompt(1, 20), GREEDY, pin=ttl)
    with pytest.raises(InvalidRequest, match="must be above 0"):
        engine.pause("s", ttl=ttl)


def test_a_paused_session_comes_back_to_its_prefix(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL)
    ids = prompt(1, 100)
    first = engine.generate(ids, GREEDY, session="s")
    other = engine.generate(prompt(2, 100), GREEDY, session="other")
    kept = engine.pause("s", ttl=60)
    assert kept == 100 + 7
    crowd(engine)
    longer = [*ids, *first.token_ids, 7, 8, 9]
    again = engine.generate(longer, GREEDY, session="s")
    assert again.cache.cached_tokens == kept
    assert answer(again) == answer(make_engine(prefix_cache=False).generate(longer, GREEDY))
    assert (
        engine.generate(
            [*prompt(2, 100), *other.token_ids, 7], GREEDY, session="other"
        ).cache.cached_tokens
        < 100
    )
    # Its next call has ended the pause.
    assert engine.stats()["paused_tokens"] == 0


def test_a_released_session_leaves_first(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL)
    shared = prompt(0, 60)
    for name, seed in (("old", 1), ("new", 2)):
        engine.generate([*shared, *prompt(seed, 60)], GREEDY, session=name)
    # The younger one ends: its own 60 tokens and answer go, what both share stays.
    assert engine.release("new") == 60 + 7
    engine.generate(prompt(3, 400), SamplingParams(max_tokens=1))
    old = engine.generate([*shared, *prompt(1, 60), 5], GREEDY)
    assert old.cache.cached_tokens >= 100
    assert engine.generate([*shared, *prompt(2, 60), 5], GREEDY).cache.cached_tokens == 60


def test_hints_for_unknown_sessions_do_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL)
    assert engine.pause("nobody") == engine.release("nobody") == engine.prefetch("nobody") == 0
    engine.generate(prompt(1, 50), GREEDY, session="s", salt="a")
    assert engine.pause("s") == engine.pause("s", salt="b") == 0
    assert engine.pause("s", salt="a") == 57
    assert engine.release("s", salt="a") == 57
    assert engine.release("s", salt="a") == 0


@pytest.mark.parametrize("page", [1, 16])
def test_a_prefetch_brings_a_prefix_back_before_the_call(
    make_engine: MakeEngine, page: int
) -> None:
    engine = make_engine(pool_tokens=POOL, page_size=page, host_cache="1MiB", load_policy="always")
    ids = prompt(1, 200)
    engine.generate(ids, GREEDY, session="s")
    crowd(engine)
    loaded = engine.stats()["tiers"]["host"]["loaded_tokens_total"]
    found = engine.prefetch("s")
    assert found >= 100
    end = time.monotonic() + 5
    while engine.stats()["num_requests_waiting"] and time.monotonic() < end:
        time.sleep(0.005)
    stats = engine.stats()
    assert stats["tiers"]["host"]["loaded_tokens_total"] == loaded + found
    assert (stats["num_requests_waiting"], stats["locked_tokens"]) == (0, 0)
    out = engine.generate([*ids, 7], GREEDY, session="s")
    assert out.cache.cached_tokens >= 192
    assert out.cache.cached_by_tier["device"] == out.cache.cached_tokens, "it was there already"
    assert answer(out) == answer(make_engine(prefix_cache=False).generate([*ids, 7], GREEDY))
    engine.check()


def test_a_thousand_hints_leave_nothing_behind(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL, host_cache="1MiB", load_policy="always")
    rng = np.random.default_rng(0)
    for turn in range(20):
        engine.generate(prompt(turn, 100), GREEDY, session=f"s{turn % 7}")
        for _ in range(50):
            name = f"s{rng.integers(0, 9)}"
            (engine.pause, engine.release, engine.prefetch)[rng.integers(0, 3)](name)
    engine.flush()
    end = time.monotonic() + 5
    while engine.stats()["num_requests_waiting"] and time.monotonic() < end:
        time.sleep(0.005)
    stats = engine.stats()
    assert stats["num_requests_waiting"] == stats["locked_tokens"] == stats["paused_tokens"] == 0
    engine.check()


def test_the_view_of_the_tree(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL)
    shared = prompt(0, 60)
    engine.generate([*shared, *prompt(1, 20)], GREEDY)
    engine.generate([*shared, *prompt(2, 20)], GREEDY, salt=None)
    engine.generate(prompt(3, 30), GREEDY, salt="a")
    seen = engine.tree()
    roots = [n for n in seen.nodes if n.parent is None]
    assert sorted(n.tokens for n in roots) == [30, 60]
    trunk = next(n for n in roots if n.tokens == 60)
    assert (trunk.uses, trunk.shares, trunk.tiers) == (1, 1, ("device",))
    below = [n for n in seen.nodes if n.parent == trunk.id]
    assert [(n.start, n.tokens) for n in below] == [(60, 20), (60, 20)]
    assert sum(n.tokens for n in seen.nodes) == sum(s["tokens"] for s in seen.namespaces)
    assert [n.tokens for n in engine.tree(of=lambda salt: salt == "a").nodes] == [30, 7]
    small = engine.tree(most=1)
    assert [n.id for n in small.nodes] == [trunk.id]
    assert (small.left_out, small.left_out_tokens) == (6, 37 + 27 + 27)
    assert engine.tree(depth=1).left_out == 5
    node = engine.node(trunk.id[:12])
    assert node is not None
    shown, ids, children = node
    assert (shown.id, ids.tolist(), children) == (trunk.id, shared, 2)
    assert engine.node("") is None
    assert engine.node(trunk.id, of=lambda salt: salt == "a") is None


def test_a_quota_keeps_a_flood_of_one_salt_away_from_another(make_engine: MakeEngine) -> None:
    mine = prompt(1, 150)
    rates = {}
    for quota in (1.0, 0.5):
        engine = make_engine(pool_tokens=POOL, namespace_quota=quota, eviction="lru")
        engine.generate(mine, GREEDY, salt="mine")
        for seed in range(900, 910):
            engine.generate(prompt(seed, 100), SamplingParams(max_tokens=1), salt="flood")
        rates[quota] = engine.generate([*mine, 5], GREEDY, salt="mine").cache.cached_tokens
    assert rates == {1.0: 0, 0.5: 150}
