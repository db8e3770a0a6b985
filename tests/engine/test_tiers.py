"""Lower tiers on a real engine: what left the pool comes back, and no answer ever changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.engine import Engine, SamplingParams
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.copies import AT_ONCE_BYTES, Copies

MakeEngine = Callable[..., Engine]
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, logprobs=1)
POOL = 256


def prompt(seed: int, n: int) -> list[int]:
    return np.random.default_rng(seed).integers(10, 200, n).tolist()


def push_out(engine: Engine) -> None:
    """Fill the pool with prompts of no use to anybody."""
    for seed in range(900, 903):
        engine.generate(prompt(seed, POOL - 16), SamplingParams(max_tokens=1, temperature=0.0))


def wait_for(engine: Engine, tier: str, tokens: int) -> None:
    """Until so many tokens are in a tier."""
    end = time.monotonic() + 10
    while engine.stats()["tiers"][tier]["tokens"] < tokens:
        assert time.monotonic() < end
        time.sleep(0.01)


def answer(out: Any) -> tuple[Any, ...]:
    return tuple((t.token_id, t.logprob) for t in out.choices[0].logprobs)


@pytest.fixture
def cold(make_engine: MakeEngine) -> Callable[[list[int]], tuple[Any, ...]]:
    engine = make_engine(pool_tokens=POOL, prefix_cache=False)
    return lambda ids: answer(engine.generate(ids, GREEDY))


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("length", [47, 48, 49, 100])
@pytest.mark.parametrize("most", [0, AT_ONCE_BYTES], ids=["queued", "at once"])
def test_comes_back_from_the_host_and_says_the_same(
    make_engine: MakeEngine,
    cold: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    page: int,
    length: int,
    most: int,
) -> None:
    monkeypatch.setattr(Copies, "at_once_bytes", most)
    engine = make_engine(pool_tokens=POOL, page_size=page, host_cache="1MiB", load_policy="always")
    ids = prompt(1, length)
    engine.generate(ids, GREEDY)
    push_out(engine)
    again = engine.generate(ids, GREEDY)
    whole = (length - 1) // page * page
    assert again.cache.cached_by_tier["host"] + again.cache.cached_by_tier["device"] == whole
    assert again.cache.cached_by_tier["host"] >= 32
    assert answer(again) == cold(ids)
    engine.check()


@pytest.mark.parametrize("page", [1, 16])
def test_comes_back_from_disk_after_a_restart(
    make_engine: MakeEngine, cold: Callable[..., Any], tmp_path: Path, page: int
) -> None:
    options = {
        "pool_tokens": POOL,
        "page_size": page,
        "disk_cache": str(tmp_path),
        "load_policy": "always",
    }
    ids = prompt(2, 120)
    first = make_engine(**options)
    told = first.generate(ids, GREEDY)
    first.close()
    second = make_engine(**options)
    longer = [*ids, *told.choices[0].token_ids, 17, 18, 19]
    out = second.generate(longer, GREEDY)
    assert out.cache.cached_by_tier["disk"] >= 112
    assert out.cache.cached_by_tier["device"] == 0
    assert answer(out) == cold(longer)
    stats = second.stats()["tiers"]
    assert stats["disk"]["loaded_tokens_total"] == out.cache.cached_by_tier["disk"]
    second.check()


def test_salts_share_nothing_on_any_tier(make_engine: MakeEngine, tmp_path: Path) -> None:
    options = {
        "pool_tokens": POOL,
        "host_cache": "1MiB",
        "disk_cache": str(tmp_path),
        "load_policy": "always",
    }
    ids = prompt(3, 100)
    engine = make_engine(**options)
    engine.generate(ids, GREEDY, salt="org_1\0002345")
    push_out(engine)
    for salt in (None, "org_12345", "org_1\0002345 "):
        assert engine.generate(ids, GREEDY, salt=salt).cache.cached_tokens == 0
    engine.close()
    engine = make_engine(**{**options, "disk_cache": str(tmp_path / "other")})
    engine.generate(ids, GREEDY, salt="a")
    engine.close()
    engine = make_engine(**{**options, "disk_cache": str(tmp_path / "other")})
    assert engine.generate(ids, GREEDY, salt="b").cache.cached_tokens == 0
    assert engine.generate(ids, GREEDY).cache.cached_tokens == 0
    assert engine.generate(ids, GREEDY, salt="a").cache.cached_by_tier["disk"] == 99


def test_shared_only_stores_no_salted_prompt(make_engine: MakeEngine, tmp_path: Path) -> None:
    options = {"pool_tokens": POOL, "disk_cache": str(tmp_path), "disk_store": "shared"}
    engine = make_engine(**options)
    engine.generate(prompt(4, 100), GREEDY, salt="mine")
    engine.close()
    assert list((tmp_path / "groups").iterdir()) == []


@pytest.mark.parametrize("place", ["magic", "header", "ids", "digests", "first page", "last page"])
def test_a_flipped_byte_is_a_miss(
    make_engine: MakeEngine, cold: Callable[..., Any], tmp_path: Path, place: str
) -> None:
    options = {
        "pool_tokens": POOL,
        "page_size": 16,
        "disk_cache": str(tmp_path),
        "load_policy": "always",
    }
    ids = prompt(5, 120)
    engine = make_engine(**options)
    engine.generate(ids, GREEDY)
    engine.close()
    (file,) = (tmp_path / "groups").iterdir()
    data = bytearray(file.read_bytes())
    header = 14 + int.from_bytes(data[10:14], "little")
    at = {
        "magic": 2,
        "header": 40,
        "ids": header + 5,
        "digests": header + 4 * 112 + 3,
        "first page": header + 4 * 112 + 16 * 8 + 60,
        "last page": len(data) - 1,
    }[place]
    data[at] ^= 1
    file.write_bytes(data)
    engine = make_engine(**options)
    out = engine.generate([*ids, 1], GREEDY)
    assert out.cache.cached_tokens == 0
    assert answer(out) == cold([*ids, 1])
    assert engine.stats()["tiers"]["disk"]["bad_groups_total"] == 1
    assert not file.exists()
    engine.check()
    again = engine.generate([*ids, 1], GREEDY)
    assert again.cache.cached_tokens == 112


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_truncated_file_is_a_miss(
    make_engine: MakeEngine, cold: Callable[..., Any], tmp_path: Path, keep: int
) -> None:
    options = {
        "pool_tokens": POOL,
        "page_size": 16,
        "disk_cache": str(tmp_path),
        "load_policy": "always",
    }
    ids = prompt(6, 120)
    engine = make_engine(**options)
    engine.generate(ids, GREEDY)
    engine.close()
    (file,) = (tmp_path / "groups").iterdir()
    file.write_bytes(file.read_bytes()[:keep])
    engine = make_engine(**options)
    out = engine.generate([*ids, 1], GREEDY)
    assert out.cache.cached_tokens == 0
    assert answer(out) == cold([*ids, 1])
    engine.check()


def test_another_page_size_or_dtype_is_a_miss(make_engine: MakeEngine, tmp_path: Path) -> None:
    ids = prompt(7, 120)
    engine = make_engine(pool_tokens=POOL, page_size=16, disk_cache=str(tmp_path))
    engine.generate(ids, GREEDY)
    engine.close()
    for other in ({"page_size": 1}, {"page_size": 16, "kv_dtype": "bfloat16"}):
        engine = make_engine(
            pool_tokens=POOL, disk_cache=str(tmp_path), load_policy="always", **other
        )
        assert engine.generate(ids, GREEDY).cache.cached_tokens == 0
        engine.close()
    engine = make_engine(
        pool_tokens=POOL, page_size=16, disk_cache=str(tmp_path), load_policy="always"
    )
    assert engine.generate(ids, GREEDY).cache.cached_by_tier["disk"] == 112


def test_a_flush_empties_device_and_host_and_leaves_the_disk(
    make_engine: MakeEngine, cold: Callable[..., Any], tmp_path: Path
) -> None:
    options = {
        "pool_tokens": POOL,
        "host_cache": "1MiB",
        "disk_cache": str(tmp_path),
        "load_policy": "always",
    }
    engine = make_engine(**options)
    ids = prompt(8, 100)
    engine.generate(ids, GREEDY)
    engine.flush()
    assert engine.generate(ids, GREEDY).cache.cached_tokens == 0
    engine.close()
    engine = make_engine(**options)
    assert engine.generate(ids, GREEDY).cache.cached_by_tier["disk"] == 99
    engine.flush()
    out = engine.generate(ids, GREEDY)
    assert out.cache.cached_by_tier["disk"] == 99
    assert answer(out) == cold(ids)


def test_a_slow_tier_is_declined_and_both_figures_are_told(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL, host_cache="1MiB")
    ids = prompt(9, 100)
    engine.generate(ids, GREEDY)
    push_out(engine)
    lower = engine._core.lower
    assert lower is not None
    lower.costs.links["host"].bandwidth = 1.0
    out = engine.generate(ids, GREEDY)
    assert out.cache.cached_by_tier["host"] == 0
    assert out.cache.load is not None
    assert out.cache.load.tokens >= 32 and out.cache.load.loaded == 0
    assert out.cache.load.load_ms > out.cache.load.compute_ms > 0
    assert engine.stats()["tiers"]["host"]["declined_tokens_total"] == out.cache.load.tokens


def test_bad_settings_say_what_is_wrong(make_engine: MakeEngine, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="host_cache must be a size such as 512MiB"):
        make_engine(host_cache="a lot")
    with pytest.raises(InvalidRequest, match="three quarters"):
        make_engine(host_cache="900TiB")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot be used"):
        make_engine(disk_cache=str(tmp_path / "file"))
    engine = make_engine(disk_cache=str(tmp_path / "cache"))
    with pytest.raises(InvalidRequest, match="in use by another"):
        make_engine(disk_cache=str(tmp_path / "cache"))
    engine.close()
    for path in (tmp_path / "cache").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_disk_keeps_within_its_size(make_engine: MakeEngine, tmp_path: Path) -> None:
    options = {
        "pool_tokens": POOL,
        "page_size": 16,
        "host_cache": "1MiB",
        "disk_cache": str(tmp_path),
        "disk_size": "300KiB",
        "load_policy": "always",
    }
    engine = make_engine(**options)
    for seed in range(20, 30):
        engine.generate(prompt(seed, 200), GREEDY)
    end = time.monotonic() + 10
    while not engine.stats()["tiers"]["disk"]["stored_tokens_total"] and time.monotonic() < end:
        time.sleep(0.005)  # writing takes its time
    stats = engine.stats()["tiers"]["disk"]
    engine.close()
    total = sum(f.stat().st_size for f in (tmp_path / "groups").iterdir())
    assert stats["stored_tokens_total"] > 0
    assert total <= 300 * 1024
    engine = make_engine(**options)
    hits = [
        engine.generate(prompt(seed, 200), GREEDY).cache.cached_by_tier["disk"]
        for seed in range(20, 30)
    ]
    assert any(hits) and not all(hits)


def test_the_host_tier_as_a_multiple_of_the_pool(make_engine: MakeEngine) -> None:
    engine = make_engine(pool_tokens=POOL, host_cache="2.5x")
    assert engine.stats()["tiers"]["host"]["capacity_tokens"] == 2.5 * POOL
    assert make_engine(pool_tokens=POOL, host_cache="0x").stats()["tiers"] == {}
    for wrong in ("x", "-1x", "nanx", "1e9x", "2y"):
        with pytest.raises(InvalidRequest, match="host_cache"):
            make_engine(pool_tokens=POOL, host_cache=wrong)


@pytest.mark.parametrize("page", [1, 16])
def test_what_calls_share_is_written_through_though_their_ends_are_new(
    make_engine: MakeEngine, page: int
) -> None:
    engine = make_engine(pool_tokens=1024, page_size=page, host_cache="1MiB", host_write="through")
    shared = prompt(1, 96)
    for seed in range(2, 6):
        engine.generate([*shared, *prompt(seed, 40)], GREEDY)
    wait_for(engine, "host", 96)
    assert engine.stats()["tiers"]["host"]["stored_tokens_total"] < 96 + 16


def test_a_save_that_goes_on_when_calls_have_ended_does_not_empty_the_cache(
    make_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """It locks what it copies."""
    engine = make_engine(
        pool_tokens=1024,
        page_size=16,
        host_cache="1MiB",
        host_write="through",
        host_write_hits=1,
        check_invariants=False,
    )
    lower = engine._core.lower
    assert lower is not None
    down, may = lower.mover.copies.down, threading.Event()

    def slow(*arguments: Any) -> None:
        assert may.wait(30)
        down(*arguments)

    lower.mover.copies.down = slow  # type: ignore[assignment, method-assign]
    for _ in range(3):
        out = engine.generate(prompt(1, 97), SamplingParams(max_tokens=1))
    assert engine.stats()["locked_tokens"] == 96
    may.set()
    assert out.cache.cached_tokens == 96
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    wait_for(engine, "host", 96)
    engine.check()
