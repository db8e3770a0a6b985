"""The trace bench: its naive model by hand, its long log's lengths, and how it speaks of peers."""

from __future__ import annotations

import random
from pathlib import Path

from agentkv.bench.trace import _block_rate, naive_lru, write_long
from agentkv.bench.trace_peers import run
from agentkv.trace.readers import read
from agentkv.trace.render import Renderer

LOGS = Path(__file__).parents[1] / "trace" / "causes" / "logs.py"


def test_naive_lru_by_hand() -> None:
    # Room for two blocks: 1 2 | 1 found, 2 found | 3 4 push both out | nothing of 1 2 is there.
    assert naive_lru([[1, 2], [1, 2], [3, 4], [1, 2]], 2) == 2 / 8
    # What stands behind a gap is not found.
    assert naive_lru([[1, 2, 3], [9, 2, 3]], 10) == 0
    assert naive_lru([[1, 2, 3]] * 4, 3) == 9 / 12


def test_leaf_lru_is_not_below_it_on_traffic_with_shared_beginnings() -> None:
    rng = random.Random(0)
    prompts = []
    for n in range(600):
        head = min(int(rng.expovariate(0.3)), 20)
        prompts.append([100 * head + i for i in range(8)] + [10_000 + 50 * n + i for i in range(6)])
    distinct = len({b for p in prompts for b in p})
    for share in (0.01, 0.05, 0.25):
        size = int(share * distinct)
        assert 0 < naive_lru(prompts, size) <= _block_rate(prompts, size)


def test_the_long_log_has_the_length_that_it_says(tmp_path: Path) -> None:
    log = tmp_path / "long.jsonl"
    assert write_long(log, 60, 3_400) == log.stat().st_size
    renderer = Renderer()
    lengths = [renderer.render(c).tokens for c in read([log])]
    assert len(lengths) == 60
    assert 3_200 < sum(lengths) / 60 < 3_600


def test_peers_that_are_not_there_are_named_and_those_that_fail_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "promptcachelint"
    broken.write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 3\n")
    broken.chmod(0o755)
    report = run(LOGS, tmp_path, None, requests=5)
    assert [r["tool"] for r in report.rows] == ["agentkv trace report", "promptcachelint"]
    assert report.rows[0]["named"] == 16 and report.rows[0]["false"] == 0
    assert report.rows[1]["found"] == 0 and report.rows[1]["requests_per_second"] is None
    notes = "\n".join(report.notes)
    assert "kvlint: not in" in notes and "status 3: no such thing" in notes
    assert report.ok
