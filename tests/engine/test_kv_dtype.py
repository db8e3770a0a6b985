"""KV dtypes on a real engine: FP8 is the same warm and cold; smaller tiers, and what may never mix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from agentkv.bench.tiny import build
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.pool import SLOT_PAD

Make = Callable[..., Engine]
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, logprobs=1, ignore_eos=True)
POOL = 256
CHUNKS = pytest.mark.parametrize("chunk", [512, 24], ids=["whole", "chunked"])
PAGES = pytest.mark.parametrize("page", [1, 16])


@pytest.fixture(scope="module")
def two_heads(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model with two layers and two KV heads."""
    return str(build(tmp_path_factory.mktemp("two-heads")))


@pytest.fixture
def make(make_engine: Make, two_heads: str) -> Iterator[Make]:
    def with_defaults(**options: Any) -> Engine:
        base = {
            "model": two_heads,
            "pool_tokens": POOL,
            "kv_dtype": "fp8",
            "load_policy": "always",
        }
        return make_engine(**{**base, **options})

    yield with_defaults


def prompt(seed: int, n: int) -> list[int]:
    return np.random.default_rng(seed).integers(10, 200, n).tolist()


def answer(out: Any) -> tuple[Any, ...]:
    found = tuple((t.token_id, t.logprob) for t in out.choices[0].logprobs)
    assert all(math.isfinite(p) for _, p in found)
    return found


def push_out(engine: Engine) -> None:
    for seed in range(900, 903):
        engine.generate(prompt(seed, POOL - 16), SamplingParams(max_tokens=1, temperature=0.0))


def cold(make: Make, ids: list[int], **options: Any) -> tuple[Any, ...]:
    return answer(make(prefix_cache=False, **options).generate(ids, GREEDY))


# -- warm equals cold, to the last bit


@PAGES
@CHUNKS
def test_from_the_pool(make: Make, page: int, chunk: int) -> None:
    engine = make(page_size=page, max_batch_tokens=chunk)
    assert engine.bit_exact
    for length in (15, 16, 17, 100):
        ids = prompt(length, length)
        first = engine.generate(ids, GREEDY)
        again = engine.generate(ids, GREEDY)
        assert first.cache.cached_tokens == 0
        assert again.cache.cached_by_tier["device"] == (length - 1) // page * page
        # Cold in one piece, whatever was the size of the pieces here.
        assert answer(first) == answer(again) == cold(make, ids)


@PAGES
@CHUNKS
def test_from_the_host(make: Make, page: int, chunk: int) -> None:
    engine = make(page_size=page, max_batch_tokens=chunk, host_cache="1MiB")
    ids = prompt(1, 100)
    engine.generate(ids, GREEDY)
    push_out(engine)
    again = engine.generate(ids, GREEDY)
    assert again.cache.cached_by_tier["host"] >= 32
    assert answer(again) == cold(make, ids)
    engine.check()


@PAGES
@CHUNKS
def test_from_disk_after_a_restart(make: Make, page: int, chunk: int, tmp_path: Path) -> None:
    options = {"page_size": page, "max_batch_tokens": chunk, "disk_cache": str(tmp_path)}
    ids = prompt(2, 120)
    engine = make(**options)
    told = engine.generate(ids, GREEDY)
    engine.close()
    engine = make(**options)
    longer = [*ids, *told.choices[0].token_ids, 17, 18, 19]
    out = engine.generate(longer, GREEDY)
    assert out.cache.cached_by_tier["disk"] >= 112
    assert out.cache.cached_by_tier["device"] == 0
    assert answer(out) == cold(make, longer)
    engine.check()


@pytest.mark.parametrize("host", ["float32", "bfloat16"])
def test_a_wider_host_loses_nothing(make: Make, host: str, tmp_path: Path) -> None:
    options = {"host_kv_dtype": host, "host_cache": "1MiB", "disk_cache": str(tmp_path)}
    engine = make(**options)
    assert engine.bit_exact and engine.host_kv_dtype_name == host
    ids = prompt(3, 100)
    expected = cold(make, ids)
    engine.generate(ids, GREEDY)
    push_out(engine)
    again = engine.generate(ids, GREEDY)
    assert again.cache.cached_by_tier["host"] >= 32
    assert answer(again) == expected
    engine.close()
    out = make(**options).generate(ids, GREEDY)
    assert out.cache.cached_by_tier["disk"] == 99
    assert answer(out) == expected


# -- tiers smaller than the pool


@pytest.mark.parametrize("device", ["float32", "bfloat16"])
def test_a_smaller_host_is_lossy_and_close(make: Make, device: str, tmp_path: Path) -> None:
    options = {
        "kv_dtype": device,
        "host_kv_dtype": "fp8",
        "host_cache": "1MiB",
        "disk_cache": str(tmp_path),
    }
    engine = make(**options)
    assert not engine.bit_exact
    assert (engine.kv_dtype_name, engine.host_kv_dtype_name) == (device, "fp8_e4m3")
    one = SamplingParams(max_tokens=1, temperature=0.0, logprobs=1)
    ids = prompt(4, 100)
    first = engine.generate(ids, one)
    push_out(engine)
    again = engine.generate(ids, one)
    assert again.cache.cached_by_tier["host"] >= 32
    (was,), (came,) = answer(first), answer(again)
    assert was[1] != came[1]
    assert abs(was[1] - came[1]) < 0.3
    # It goes down once more as it came.
    push_out(engine)
    third = engine.generate(ids, one)
    assert third.cache.cached_by_tier["host"] >= 32
    assert answer(third) == answer(again)
    engine.close()
    out = make(**options).generate(ids, one)
    assert out.cache.cached_by_tier["disk"] == 99
    assert abs(was[1] - answer(out)[0][1]) < 0.3


def test_bytes_of_a_token_by_tier(make: Make, tmp_path: Path) -> None:
    numbers = 2 * 2 * 2 * 16  # layers, sides, heads, dim
    sizes = {"float32": 4, "bfloat16": 2, "fp8": 1}
    pools = {}
    for kind, size in sizes.items():
        for host, below in sizes.items():
            engine = make(
                kv_dtype=kind,
                host_kv_dtype=host,
                host_cache="64KiB",
                disk_cache=str(tmp_path / kind / host),
            )
            pools[kind] = engine.kv_bytes
            lower = engine._core.lower
            assert lower is not None and lower.store is not None
            assert engine._core.parts.pool.token_bytes == numbers * size
            assert lower.costs.token_bytes["host"] == numbers * below
            assert lower.costs.token_bytes["disk"] == numbers * below
            assert lower.store.layout.page_bytes == numbers * below
            assert engine.stats()["tiers"]["host"]["capacity_tokens"] == 65536 // numbers // below
            engine.close()
    assert pools["float32"] == 2 * pools["bfloat16"] == 4 * pools["fp8"]


def test_files_are_as_small_as_the_host_dtype(make: Make, tmp_path: Path) -> None:
    sizes = {}
    for kind in ("float32", "bfloat16", "fp8"):
        engine = make(kv_dtype=kind, page_size=16, disk_cache=str(tmp_path / kind))
        engine.generate(prompt(5, 200), GREEDY)
        engine.close()
        files = list((tmp_path / kind / "groups").iterdir())
        assert len(files) <= 2
        sizes[kind] = sum(file.stat().st_size for file in files)
    pages = 192 * 2 * 2 * 2 * 16
    assert sizes["float32"] - sizes["bfloat16"] == pytest.approx(2 * pages, abs=32)
    assert sizes["bfloat16"] - sizes["fp8"] == pytest.approx(pages, abs=256)


# -- what may not mix


def test_another_dtype_on_disk_is_a_miss(make: Make, tmp_path: Path) -> None:
    ids = prompt(6, 120)
    settings = [
        {"kv_dtype": device, "host_kv_dtype": host}
        for device in ("float32", "bfloat16", "fp8")
        for host in ("float32", "bfloat16", "fp8")
    ]
    for one in settings:
        engine = make(disk_cache=str(tmp_path), **one)
        assert engine.generate(ids, GREEDY).cache.cached_tokens == 0, one
        engine.close()
    for one in settings:
        engine = make(disk_cache=str(tmp_path), **one)
        assert engine.generate(ids, GREEDY).cache.cached_by_tier["disk"] == 119, one
        assert engine.stats()["tiers"]["disk"]["bad_groups_total"] == 0
        engine.close()


@pytest.mark.parametrize(
    "kinds", [("fp8", "auto"), ("float32", "fp8"), ("fp8", "float32")], ids=str
)
def test_other_scales_on_disk_are_a_miss(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, str]
) -> None:
    options = {
        "kv_dtype": kinds[0],
        "host_kv_dtype": kinds[1],
        "disk_cache": str(tmp_path),
    }
    ids = prompt(7, 120)
    engine = make(**options)
    engine.generate(ids, GREEDY)
    scales = engine._core.parts.pool.scales
    engine.close()
    assert scales is not None
    other = scales.clone()
    other[1, 0, 1] *= 2
    with monkeypatch.context() as patch:
        patch.setattr("agentkv.engine.parts.fp8_scales", lambda *_: other)
        engine = make(**options)
        out = engine.generate(ids, GREEDY)
        assert out.cache.cached_tokens == 0
        assert answer(out) == cold(make, ids, kv_dtype=kinds[0])
        engine.close()
    engine = make(**options)
    assert engine.generate(ids, GREEDY).cache.cached_by_tier["disk"] == 119


def test_what_other_arithmetic_computed_is_a_miss(make: Make, tmp_path: Path) -> None:
    ids = prompt(9, 60)
    for dtype in ("bfloat16", "float32"):
        engine = make(dtype=dtype, disk_cache=str(tmp_path))
        assert engine.bit_exact == (dtype == "float32")
        assert engine.generate(ids, GREEDY).cache.cached_tokens == 0, dtype
        engine.close()
    out = make(disk_cache=str(tmp_path)).generate(ids, GREEDY)
    assert out.cache.cached_by_tier["disk"] == 59
    assert answer(out) == cold(make, ids)


def test_names_of_the_dtype_are_one(make: Make, tmp_path: Path) -> None:
    engine = make(disk_cache=str(tmp_path), kv_dtype="fp8")
    engine.generate(prompt(8, 60), GREEDY)
    engine.close()
    engine = make(disk_cache=str(tmp_path), kv_dtype="fp8_e4m3", host_kv_dtype="fp8")
    assert engine.kv_dtype_name == "fp8_e4m3"
    assert engine.generate(prompt(8, 60), GREEDY).cache.cached_by_tier["disk"] == 59


# -- close to float32


def test_answers_are_close_to_float32s_and_finite(make: Make) -> None:
    wide, narrow = make(kv_dtype="float32", pool_tokens=2048), make(pool_tokens=2048)
    one = SamplingParams(max_tokens=1, temperature=0.0, logprobs=1, prompt_logprobs=0)
    distances = []
    for seed in range(12):
        ids = prompt(seed, 3 + 29 * seed)
        scored = []
        for engine in (wide, narrow):
            found = engine.generate(ids, one).prompt_logprobs
            assert found is not None
            scored.append(np.array([p.logprob for p in found if p is not None]))
        assert len(scored[0]) == len(scored[1]) == len(ids) - 1
        assert np.isfinite(scored[1]).all()
        distances.append(np.abs(scored[0] - scored[1]))
    off = np.concatenate(distances)
    assert 1e-4 < off.mean() < 0.2
    assert off.max() < 2.0


def test_scales_are_calibrated_only_where_they_are_needed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> torch.Tensor:
        raise AssertionError("calibrated for nothing")

    monkeypatch.setattr("agentkv.engine.parts.fp8_scales", never)
    make(kv_dtype="bfloat16", host_cache="1MiB")
    make(kv_dtype="auto", host_kv_dtype="fp8")  # no tier below
    with pytest.raises(AssertionError, match="for nothing"):
        make(kv_dtype="auto", host_kv_dtype="fp8", host_cache="1MiB")


@pytest.mark.parametrize("name", ["kv_dtype", "host_kv_dtype"])
def test_an_unknown_dtype_is_refused(make: Make, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name} must be one of .*fp8.*got 'fp4'"):
        make(**{name: "fp4"})


def test_a_server_says_what_its_pool_keeps(make: Make, serve: Callable[..., str]) -> None:
    url = serve(make(host_kv_dtype="bfloat16", host_cache="1MiB"))
    info = httpx.get(f"{url}/server_info").json()
    assert info["kv_dtype"] == info["args"]["kv_dtype"] == "fp8_e4m3"
    assert info["host_kv_dtype"] == info["args"]["host_kv_dtype"] == "bfloat16"
    assert info["kv_bytes"] == 2 * 2 * (POOL + SLOT_PAD) * 2 * 16
    assert httpx.get(f"{url}/model_info").json()["kv_dtype"] == "fp8_e4m3"
    line = f'agentkv:kv_bytes{{dtype="fp8_e4m3"}} {info["kv_bytes"]}.0'
    assert line in httpx.get(f"{url}/metrics").text.splitlines()
