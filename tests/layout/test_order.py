"""The order of least expected cost: never beaten by any other allowed order."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.layout.order import CHANCES, EXACT, expected_cost, expected_order, nested_order
from agentkv.prompt import STABILITIES

Pairs = list[tuple[int, int]]

chances = st.one_of(
    st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1, allow_nan=False), st.floats(0, 0.01)
)
sizes = st.one_of(st.integers(0, 5000), st.sampled_from([1, 10]))


@st.composite
def cases(draw: st.DrawFn, most: int) -> tuple[list[float], list[int], Pairs]:
    n = draw(st.integers(1, most))
    ps = draw(st.lists(chances, min_size=n, max_size=n))
    tokens = draw(st.lists(sizes, min_size=n, max_size=n))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    before = draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else []
    return ps, tokens, before


def holds(order: Sequence[int], before: Iterable[tuple[int, int]]) -> bool:
    place = {unit: i for i, unit in enumerate(order)}
    return all(place[a] < place[b] for a, b in before)


@settings(max_examples=150, deadline=None)
@given(cases(6))
def test_no_allowed_order_costs_less(case: tuple[list[float], list[int], Pairs]) -> None:
    ps, tokens, before = case
    order = expected_order(ps, tokens, before)
    assert sorted(order) == list(range(len(ps)))
    assert holds(order, before)
    best = min(
        expected_cost(other, ps, tokens)
        for other in itertools.permutations(range(len(ps)))
        if holds(other, before)
    )
    assert expected_cost(order, ps, tokens) <= best * (1 + 1e-9) + 1e-6


def test_seven_units_against_all_orders() -> None:
    rng = random.Random(3)
    for _ in range(12):
        ps = [rng.random() ** 3 for _ in range(7)]
        tokens = [rng.randint(1, 3000) for _ in range(7)]
        before = [(a, b) for a in range(7) for b in range(a + 1, 7) if rng.random() < 0.25]
        best = min(
            expected_cost(p, ps, tokens)
            for p in itertools.permutations(range(7))
            if holds(p, before)
        )
        got = expected_cost(expected_order(ps, tokens, before), ps, tokens)
        assert got == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(cases(60))
def test_many_units_keep_their_constraints(case: tuple[list[float], list[int], Pairs]) -> None:
    ps, tokens, before = case
    order = expected_order(ps, tokens, before)
    assert sorted(order) == list(range(len(ps)))
    assert holds(order, before)


def test_above_the_limit_modules_are_found() -> None:
    """A big steady text behind a small one that changes: together they go first."""
    n = EXACT + 10
    ps = [0.2, 0.001, *([0.3] * (n - 2))]
    tokens = [5, 100_000, *([20] * (n - 2))]
    before = [(0, 1), *((1, i) for i in range(2, n))]
    order = expected_order(ps, tokens, before)
    assert order[:2] == [0, 1]
    chain = [(i, n - 1) for i in range(2, n - 1)]  # one group, no longer a chain
    order = expected_order(ps, tokens, [(0, 1), (1, n - 1), *chain])
    assert order[:2] == [0, 1]
    assert order[-1] == n - 1


def test_without_constraints_the_order_is_by_change_odds_per_token() -> None:
    rng = random.Random(1)
    ps = [rng.random() * 0.9 for _ in range(40)]
    tokens = [rng.randint(1, 900) for _ in range(40)]
    odds = [p / ((1 - p) * t) for p, t in zip(ps, tokens, strict=True)]
    assert expected_order(ps, tokens) == sorted(range(40), key=lambda i: odds[i])


def test_ties_keep_the_order_given() -> None:
    assert expected_order([0.1] * 5, [10] * 5) == [0, 1, 2, 3, 4]
    assert expected_order([1.0] * 5, [10, 50, 20, 1, 7]) == [0, 1, 2, 3, 4]
    assert expected_order([0.1] * 5, [10] * 5, [(0, 4), (1, 3)]) == [0, 1, 2, 3, 4]
    assert nested_order([1, 1, 0, 0]) == [2, 3, 0, 1]


def test_levels_are_nested() -> None:
    """What must stand behind a fast text is as fast: it does not drag it forward."""
    assert nested_order([6, 0, 3], [(0, 1)]) == [2, 0, 1]
    assert list(CHANCES) == list(STABILITIES)
    assert sorted(CHANCES.values()) == list(CHANCES.values())


def test_twenty_units_take_no_time_worth_mention() -> None:
    rng = random.Random(2)
    ps = [rng.random() for _ in range(EXACT)]
    tokens = [rng.randint(1, 900) for _ in range(EXACT)]
    start = time.thread_time()
    expected_order(ps, tokens, [(0, i) for i in range(1, EXACT)])
    assert time.thread_time() - start < 5
    start = time.thread_time()
    expected_order(ps, tokens, [(0, i) for i in range(1, EXACT)])
    assert time.thread_time() - start < 0.01, "remembered"


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="within 0 and 1"):
        expected_order([1.5], [1])
    with pytest.raises(ValueError, match="2 chances for 1"):
        expected_order([0.5, 0.5], [1])
    with pytest.raises(ValueError, match="not in the order that was given"):
        expected_order([0.5, 0.5], [1, 1], [(1, 0)])
