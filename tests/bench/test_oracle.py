"""The model-free drive of tree, pages and scheduler: it agrees with the oracle, and would notice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agentkv.bench import oracle
from agentkv.bench.blocks import BlockRequest, block_tokens
from agentkv.bench.prompts import TracesMissing
from agentkv.engine.types import as_ids


def trace(count: int = 120, seed: int = 0) -> list[BlockRequest]:
    """Prompts that continue one another, outputs included, or start afresh."""
    rng = np.random.default_rng(seed)
    out: list[BlockRequest] = []
    whole: list[list[int]] = []
    for i in range(count):
        stem = whole[int(rng.integers(len(whole)))] if whole and rng.random() < 0.8 else []
        cut = int(rng.integers(0, len(stem) + 1))
        prompt = [*stem[:cut], *rng.integers(0, 1000, int(rng.integers(1, 60))).tolist()][:600]
        outputs = int(rng.integers(1, 20))
        out.append(BlockRequest(as_ids(prompt), outputs))
        sampled = block_tokens(i, outputs, oracle.OUTPUT_VOCAB, 1)
        whole.append([*prompt, *sampled.tolist()])
    return out


@pytest.mark.parametrize("page", [1, 16])
def test_unlimited_equals_the_oracle(page: int) -> None:
    requests = trace()
    tally = oracle.drive(requests, 100_000 // page, page)
    assert tally.equal == len(requests)
    assert sum(tally.ours) > 0


@pytest.mark.parametrize("page", [1, 16])
def test_a_small_pool_stays_below(page: int) -> None:
    requests = trace()
    tally = oracle.drive(requests, 700 // page, page)
    assert tally.above == 0
    assert 0 < tally.equal < len(requests)


def test_tally_counts_what_is_above() -> None:
    tally = oracle.Tally()
    tally.add(10, 5, 5)
    tally.add(10, 6, 5)
    tally.add(10, 4, 5)
    assert (tally.equal, tally.above) == (1, 1)


def test_real_hash_trace(traces: Path) -> None:
    report = oracle.run("none", traces=traces, requests=150, engine_part=False)
    assert report.ok
    assert len(report.rows) == 6


def test_missing_traces_are_said(tmp_path: Path) -> None:
    with pytest.raises(TracesMissing, match="--traces"):
        oracle.run("none", traces=tmp_path, engine_part=False)
