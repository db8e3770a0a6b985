"""What stands before a prefix that leaves the pool goes to disk with it, and a save reaches all there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentkv.engine.kv.disk import DiskStore
from agentkv.engine.types import SamplingParams

if TYPE_CHECKING:
    from agentkv.engine import Engine

Make = Callable[..., "Engine"]
ONE = SamplingParams(max_tokens=1)
HEAD = [1 + i % 200 for i in range(32)]


def prompts(count: int, tail: int) -> list[list[int]]:
    """They share a head, which therefore never leaves the pool."""
    return [HEAD + [1 + (i * 37 + j * (i + 3)) % 250 for j in range(tail)] for i in range(count)]


@pytest.mark.parametrize("page", [1, 16])
def test_tails_go_to_disk_though_their_head_stays_in_the_pool(
    make_engine: Make, tmp_path: Path, page: int
) -> None:
    engine = make_engine(
        pool_tokens=640, page_size=page, host_cache="2MiB", disk_cache=str(tmp_path)
    )
    for prompt in prompts(12, 96):
        engine.generate(prompt, ONE)
    end = time.monotonic() + 10
    while True:
        tiers: dict[str, Any] = engine.stats()["tiers"]
        if tiers["disk"]["stored_tokens_total"] >= tiers["host"]["stored_tokens_total"] > 96:
            break
        assert time.monotonic() < end, tiers
        time.sleep(0.01)
    engine.check()


@pytest.mark.parametrize("page", [1, 16])
def test_closing_writes_more_than_host_memory_holds(
    make_engine: Make, tmp_path: Path, page: int
) -> None:
    settings: dict[str, Any] = {
        "pool_tokens": 4096,
        "page_size": page,
        "host_cache": "100KiB",
        "disk_cache": str(tmp_path),
        "load_policy": "always",
    }
    asked = prompts(16, 160)
    engine = make_engine(**settings)
    for prompt in asked:
        engine.generate(prompt, ONE)
    assert engine.stats()["tiers"]["host"]["capacity_tokens"] < 16 * 160 // 2
    engine.close()
    again = make_engine(**settings)
    for prompt in asked:
        facts = again.generate(prompt, ONE).cache
        assert facts.prompt_tokens - facts.cached_tokens <= page
    assert again.save() == 0


@pytest.mark.parametrize("page", [1, 16])
def test_a_prefix_that_is_larger_than_the_disk_is_written_once(
    make_engine: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Its last file is the first that a full disk lets go of: it must not be written again at once."""
    monkeypatch.setattr(DiskStore, "group_bytes", 16 << 10)
    engine = make_engine(
        pool_tokens=2048,
        page_size=page,
        host_cache="1MiB",
        disk_cache=str(tmp_path),
        disk_size="60KiB",
    )
    engine.generate(prompts(1, 480)[0], ONE)
    assert engine.save() == 1
    end = time.monotonic() + 10
    tiers = engine._core.scheduler.cache.tiers
    assert tiers is not None
    while engine._worker.ask(lambda: tiers.busy):
        assert time.monotonic() < end, "it is written over and over"
        time.sleep(0.01)
    stored = engine.stats()["tiers"]["disk"]["stored_tokens_total"]
    assert 128 < stored < 512
    engine.check()


def test_saving_twice_queues_a_prefix_once(make_engine: Make, tmp_path: Path) -> None:
    engine = make_engine(pool_tokens=1024, page_size=16, disk_cache=str(tmp_path))
    for prompt in prompts(4, 96):
        engine.generate(prompt, ONE)
    tiers = engine._core.scheduler.cache.tiers
    assert tiers is not None

    def save() -> tuple[list[int], int]:
        """Before the first of them is begun."""
        return [tiers.store_all() for _ in range(3)], len(tiers._to_store)

    assert engine._worker.ask(save) == ([4, 4, 4], 4)
