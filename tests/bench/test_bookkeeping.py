"""The tree's cost bench runs, measures what it says, and fails when the tree is slow."""

from __future__ import annotations

import time

import numpy as np
import pytest

from agentkv.bench import bookkeeping
from agentkv.engine.kv.tree import RadixTree


def test_a_small_run_has_every_row() -> None:
    report = bookkeeping.run((1,), lengths=(1024,), trees=(100,), repeats=2)
    assert [row["shared"] for row in report.rows] == ["0%", "50%", "100%"]
    assert [row["visited"] for row in report.rows] == [1, 4, 5]
    assert all(row["match_us"] > 0 and row["insert_us"] > 0 for row in report.rows)
    assert len(report.checks) == 2


def test_grown_trees_have_the_size_that_was_asked_for() -> None:
    for page in (1, 16):
        tree = bookkeeping.grown_tree(500, page, np.random.default_rng(0))
        tree.check()
        assert 500 <= bookkeeping.count_nodes(tree) <= 502


def test_a_slow_tree_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    evict = RadixTree.evict

    def slow(self: RadixTree, tokens: int) -> object:
        time.sleep(0.001)
        return evict(self, tokens)

    monkeypatch.setattr(RadixTree, "evict", slow)
    report = bookkeeping.run((1,), lengths=(1024,), trees=(100,), repeats=1)
    assert not report.ok
