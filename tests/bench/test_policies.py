"""The bench of eviction policies, without recorded traces."""

from __future__ import annotations

import pytest

from agentkv.bench import policies


@pytest.mark.parametrize(("policy", "cached"), [("lru", 0), ("role", policies.HOT_TOKENS)])
def test_the_burst(policy: str, cached: int) -> None:
    assert policies.burst(policy, seed=1) == cached


def test_it_says_what_it_needs_for_the_rest() -> None:
    report = policies.run(None)
    assert [r["policy"] for r in report.rows] == ["lru", "hot", "role", "cost"]
    assert report.ok
    assert "--traces" in report.notes[0]
