"""Tiers below the pools of two ranks: each copies its own heads, and files hold all of them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine import Engine, EngineConfig, RequestOutput, SamplingParams
from agentkv.engine.errors import EngineClosed
from agentkv.engine.run.parallel_copies import pair, split, with_rows

GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tiny: Any, tiny_llama_dir: Path, tmp_path_factory: Any) -> Path:
    """A tiny random Llama of two KV heads, with a tokenizer."""
    import json

    made: Path = tmp_path_factory.mktemp("shared-out")
    vocab = json.loads((tiny_llama_dir / "config.json").read_text())["vocab_size"]
    weights = tiny("LlamaConfig", vocab_size=vocab, num_hidden_layers=2)[0]
    texts = [p for p in tiny_llama_dir.iterdir() if p.name.startswith(("tok", "chat"))]
    for path in [*texts, *weights.iterdir()]:
        shutil.copy(path, made / path.name)
    return made


@pytest.fixture
def start(model: Path) -> Any:
    made: list[Engine] = []

    def make(world: int, **options: Any) -> Engine:
        settings = {"dtype": "float32", "threads": 1, "check_invariants": True, **options}
        engine = Engine(EngineConfig(model=str(model), tensor_parallel=world, **settings))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


def ids(count: int, seed: int) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(5, 250, count).tolist()
    return found


def ask(engine: Engine, seed: int, count: int = 100) -> RequestOutput:
    return engine.generate(ids(count, seed), GREEDY)


def settle(engine: Engine) -> None:
    """Until nothing is under way between tiers."""
    lower = engine._core.lower
    assert lower is not None and lower.tiers is not None
    end = time.monotonic() + 30
    while engine._worker.ask(lambda: bool(lower.tiers and lower.tiers.busy)):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("page", "kv"), [pytest.param(1, "auto", marks=pytest.mark.slow), (16, "fp8")]
)
def test_what_left_the_pool_comes_back_to_every_rank(
    start: Callable[..., Engine], page: int, kv: str
) -> None:
    with start(1, pool_tokens=1024, page_size=page, kv_dtype=kv) as one:
        expected = {seed: ask(one, seed).token_ids for seed in (1, 2, 3)}
    engine = start(
        2, pool_tokens=160, page_size=page, kv_dtype=kv, host_cache="2MiB", load_policy="always"
    )
    host = 0
    for seed in (1, 2, 3, 1, 2, 3):
        out = ask(engine, seed)
        assert out.token_ids == expected[seed]
        host += out.cache.cached_by_tier["host"]
    assert host >= 3 * 96
    engine.check()
    assert len({facts.tables for facts in engine.ranks()}) == 1


def test_what_is_on_disk_outlives_all_ranks(start: Callable[..., Engine], tmp_path: Path) -> None:
    options = {"page_size": 16, "pool_tokens": 512, "load_policy": "always"}
    with start(1, **options) as one:
        cold = ask(one, 1)
    with start(2, disk_cache=str(tmp_path), **options) as engine:
        assert ask(engine, 1).token_ids == cold.token_ids
        engine.save()
        settle(engine)
    with start(2, disk_cache=str(tmp_path), **options) as engine:
        warm = ask(engine, 1)
        assert warm.cache.cached_by_tier["disk"] == 96
        assert warm.token_ids == cold.token_ids
        engine.check()
    # Sums over two ranks are not, to the last bit, those of one: what two wrote is theirs.
    with start(1, disk_cache=str(tmp_path), **options) as one:
        alone = ask(one, 1)
        assert alone.cache.cached_tokens == 0 and alone.token_ids == cold.token_ids


def test_a_narrower_host_tier(start: Callable[..., Engine]) -> None:
    """Each rank has the scales of its own heads, though no pool is FP8."""
    engine = start(2, pool_tokens=160, host_cache="1MiB", host_kv_dtype="fp8", load_policy="always")
    assert not engine.bit_exact
    for seed in (1, 2, 3):
        ask(engine, seed)
    again = ask(engine, 1)
    assert again.cache.cached_by_tier["host"] >= 64
    lower = engine._core.lower
    assert lower is not None
    slots = np.arange(lower.host.slots, dtype=np.int32)
    for rows in engine._worker.ask(lambda: lower.mover.copies.gather(slots)):
        heads = rows.float().abs().sum(dim=(0, 1, 3))
        assert heads.shape == (2,) and bool((heads > 0).all()), "the heads of both ranks"


def test_a_rank_that_dies_ends_loads_too(start: Callable[..., Engine]) -> None:
    engine = start(2, pool_tokens=160, host_cache="1MiB", load_policy="always")
    for seed in (1, 2, 3):
        ask(engine, seed)
    assert engine._core.parts.parallel is not None
    (pid,) = engine._core.parts.parallel.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineClosed, match="Rank 1 of 2"):
        ask(engine, 1)
    engine.close()


def test_what_is_sent_arrives() -> None:
    one, other = np.array([3, 1, 2], dtype=np.int32), np.array([9, 8, 7], dtype=np.int32)
    back = split(bytearray(pair(one, other)))
    assert [a.tolist() for a in back] == [[3, 1, 2], [9, 8, 7]]
    rows = torch.arange(24, dtype=torch.bfloat16).view(2, 3, 2, 2)
    sent = with_rows(one, [rows[:, :, :1]])
    assert len(sent) == 4 * 4 + rows.numel() // 2 * 2
