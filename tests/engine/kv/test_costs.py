"""The model of costs: it finds the figures behind what was measured, and notices when they change."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv.engine.kv import costs
from agentkv.engine.kv.costs import Costs, Link

SIZES = [1e6, 3e6, 10e6, 30e6]


def feed(
    link: Link, bandwidth: float, fixed: float, rounds: int, noise: float = 0.1
) -> list[float]:
    """Loads of several sizes; how far each was expected from what it took, as a share."""
    rng = np.random.default_rng(0)
    off = []
    for _ in range(rounds):
        for size in SIZES:
            seconds = (fixed + size / bandwidth) * float(np.exp(rng.normal(0, noise)))
            off.append(abs(link.seconds(size) - seconds) / seconds)
            link.learn(size, 1, seconds)
    return off


@pytest.mark.parametrize(
    ("bandwidth", "fixed"), [(1e9, 0.002), (2e8, 0.02), (5e9, 0.0001), (2e7, 0.05)]
)
def test_figures_come_within_thirty_percent(bandwidth: float, fixed: float) -> None:
    link = Link(1e9, 0.002)
    off = feed(link, bandwidth, fixed, 6)
    assert np.mean(np.array(off[8:]) <= 0.3) >= 0.8
    assert link.seconds(SIZES[-1]) == pytest.approx(fixed + SIZES[-1] / bandwidth, rel=0.3)


def test_one_size_alone_is_learned_at_once() -> None:
    link = Link(1e9, 0.002)
    for _ in range(2):
        link.learn(10e6, 1, 1.0)
    assert link.seconds(10e6) == pytest.approx(1.0, rel=0.3)


def test_parts_cost() -> None:
    link = Link(1e9, 0.0)
    for parts in (1, 20, 5, 40, 10) * 3:
        link.learn(1e6, parts, 0.001 + 0.003 * parts)
    assert link.seconds(1e6, 30) == pytest.approx(0.091, rel=0.15)
    assert link.fixed == pytest.approx(0.003, rel=0.2)


def test_what_has_become_slow_and_fast_again_is_noticed() -> None:
    link = Link(1e9, 0.002)
    feed(link, 1e9, 0.002, 3, noise=0.02)
    for _ in range(2):
        link.learn(30e6, 1, 3.0)
    assert link.seconds(30e6) > 1.5
    for _ in range(4):
        link.learn(30e6, 1, 0.032)
    assert link.seconds(30e6) < 0.1


def test_time_weakens_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("agentkv.engine.kv.costs.time.monotonic", lambda: now)
    link = Link(1e9, 0.0)
    link.learn(10e6, 1, 1.0)
    slow = link.seconds(10e6)
    assert slow > 0.5
    now += 20 * costs.MEMORY
    assert link.seconds(10e6) < slow / 5  # the first figures are believed again


def test_nothing_is_ever_below_zero() -> None:
    link = Link(1e9, 0.01)
    for size, seconds in ((1e6, 1.0), (30e6, 0.1), (1e6, 0.9), (30e6, 0.05)) * 3:
        link.learn(size, 1, seconds)
        assert link.fixed >= 0 and link.seconds(0) >= 0 and link.seconds(1e9) > 0


def test_computing_late_in_a_prompt_takes_longer() -> None:
    model = Costs({"host": 100}, {"host": Link(1e9)}, prefill_rate=1000.0)
    for start in (0, 512, 1024, 2048, 4096) * 3:
        before = 512 * (start + 256)
        model.computed(512, 512 / 2000 + before * 2e-7, before=before)
    assert model.prefill_rate == pytest.approx(2000, rel=0.15)
    late = model.estimate({"host": 512}, start=4096)
    assert late.compute == pytest.approx(512 / 2000 + 512 * (4096 + 256) * 2e-7, rel=0.15)
    early = model.estimate({"host": 512})
    assert early.compute < late.compute and early.load == late.load and early.worth


def test_one_small_slow_load_says_nothing_of_the_bandwidth() -> None:
    """A restarted process loads a page for its first call, slowly; then the long prompt comes."""
    link = Link(1e9, 0.002)
    link.learn(1.5e6, 1, 0.17)
    assert link.seconds(1.5e6, 1) == pytest.approx(0.17, rel=0.2)
    assert link.seconds(90e6, 6) < 1.5
    for _ in range(3):  # what is slow with many bytes is believed
        link.learn(16e6, 1, 2.0)
    assert link.seconds(90e6, 6) > 6
