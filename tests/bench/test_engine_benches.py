"""The benches that need an engine, short, on a tiny random model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from agentkv.bench import cpu, load, oracle, parity
from agentkv.bench.peer import Peer
from agentkv.bench.prompts import TAU
from agentkv.bench.tiny import build
from agentkv.engine import Engine, SamplingParams


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tiny"))


def test_engine_and_transformers_agree_on_the_tiny_model(tiny: Path) -> None:
    rng = np.random.default_rng(0)
    peer = Peer(tiny, "float32")
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    with Engine(model=str(tiny), dtype="float32", pool_tokens=4096) as engine:
        for n in (5, 64, 300):
            prompt = rng.integers(3, 259, n, dtype=np.int32)
            theirs = peer.greedy(prompt, 12)
            assert theirs.logits.shape == (12, 259)
            for _ in range(2):
                found = parity.first_difference(engine.generate(prompt, params).token_ids, theirs)
                assert found is None or found.tie


def test_rates_and_first_token(tiny: Path) -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 259, 40, dtype=np.int32) for _ in range(4)]
    with Engine(model=str(tiny), dtype="float32", pool_tokens=4096) as engine:
        assert cpu.first_token(engine, prompts[0]) > 0
        assert cpu.first_token(engine, prompts[0], cached=39) > 0
        with pytest.raises(AssertionError, match="cached"):
            cpu.first_token(engine, prompts[0])
        with pytest.raises(AssertionError, match="cached"):
            cpu.first_token(engine, prompts[1], cached=39)
        assert cpu.decode_rate(engine, prompts, 24) > 0
    peer = Peer(tiny, "float32")
    assert peer.first_token(prompts[0]) > 0
    assert peer.decode_rate(prompts, 4) > 0


def test_agent_sessions_equal_the_oracle(tiny_words_dir: Path, traces: Path) -> None:
    tally = oracle.agent_sessions(str(tiny_words_dir), traces / TAU, 1, 16, "float32")
    assert tally.equal == len(tally.ours) > 5
    assert sum(tally.ours) > 0.5 * sum(tally.prompt)


@pytest.mark.slow
def test_load_leaves_nothing_behind(tiny: Path) -> None:
    report = load.run(str(tiny), seconds=6, clients=8, dtype="float32", tiny=True)
    # A few seconds are all warm-up, so memory is judged by the long run only.
    failed = [c for c in report.checks if not c.ok and c.name != "memory is flat"]
    assert not failed, (failed, report.notes)
    assert report.rows[-1]["count"] > 5
