"""Faults of the disk tier on a real engine: a right answer, a count, and nothing that stays locked."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv.bench.costs import throttled
from agentkv.engine import Engine
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.disk import DiskStore
from agentkv.engine.kv.store import tag_of
from tests.engine.kv.test_disk import LAYOUT, PAGE, SPACE, content, prefix
from tests.engine.test_tiers import GREEDY, POOL, answer, cold, prompt  # noqa: F401  (fixture)

MakeEngine = Callable[..., Engine]


def settled(engine: Engine) -> None:
    assert engine._core.lower is not None and engine._core.lower.tiers is not None
    tiers = engine._core.lower.tiers
    end = time.monotonic() + 10
    while tiers.transfers:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert tiers.loading_pages == tiers.moving_pages == 0 and not tiers._asking
    engine.check()


@pytest.mark.parametrize("where", ["fsync", "write", "index"])
def test_a_full_disk_loses_only_what_it_cannot_take(
    make_engine: MakeEngine,
    cold: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    options = {
        "pool_tokens": POOL, "page_size": 16, "host_cache": "1MiB", "host_write": "through",
        "host_write_hits": 1, "disk_cache": str(tmp_path), "load_policy": "always",
    }  # fmt: skip
    engine = make_engine(**options)
    lower = engine._core.lower
    assert lower is not None and isinstance(lower.store, DiskStore)
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        if where == "fsync":
            patch.setattr(
                "agentkv.engine.kv.disk.os.fsync", lambda handle: (_ for _ in ()).throw(full)
            )
        elif where == "write":
            real = os.fdopen

            class Half:
                """Takes the first part of a file, and then there is no room."""

                def __init__(self, file: Any) -> None:
                    self.file, self.parts = file, 0

                def write(self, data: Any) -> int:
                    self.parts += 1
                    if self.parts > 2:
                        raise full
                    return int(self.file.write(data))

                def __enter__(self) -> Half:
                    return self

                def __exit__(self, *_: object) -> None:
                    self.file.close()

            patch.setattr(
                "agentkv.engine.kv.disk.os.fdopen",
                lambda handle, mode: (
                    Half(real(handle, mode)) if mode == "wb" else real(handle, mode)
                ),
            )
        else:
            lower.store._db.execute("PRAGMA query_only = ON")
        ids = prompt(1, 120)
        for _ in range(2):
            assert answer(engine.generate(ids, GREEDY)) == cold(ids)
        settled(engine)
        stats = engine.stats()["tiers"]["disk"]
        assert stats["failed_transfers_total"] >= 1 and stats["stored_tokens_total"] == 0
        assert list((tmp_path / "groups").iterdir()) == [] and lower.store.groups() == []
    lower.store._db.execute("PRAGMA query_only = OFF")
    engine.generate(ids, GREEDY)
    engine.close()  # there is room again
    engine = make_engine(**options)
    out = engine.generate(ids, GREEDY)
    assert out.cache.cached_by_tier["disk"] == 112 and answer(out) == cold(ids)


def test_a_file_limit_in_the_middle_of_a_group(tmp_path: Path) -> None:
    """The system itself cuts the writing short, after some pages are on disk."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            one = DiskStore(tmp_path, LAYOUT, limit=1 << 30)
            small, large = prefix(1, 2), prefix(2, 64)
            one.write(SPACE, small, 0, content(small, 0))
            limit = 40_000
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                one.write(SPACE, large, 0, content(large, 0))
            except OSError as error:
                names = [p.name for p in (tmp_path / "groups").iterdir()]
                whole = names == [f"{one.groups()[0].name}.kv"]
                code = 0 if error.errno == errno.EFBIG and whole else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    one = DiskStore(tmp_path, LAYOUT, limit=1 << 30)
    (group,) = one.groups(tag_of(SPACE))
    assert group.tokens == 2 * PAGE and one.bad_groups == 0
    one.close()


@pytest.fixture
def read_only() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="agentkv-test-"))
    folder.chmod(0o555)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else takes root")
def test_a_directory_that_may_not_be_written_is_refused(read_only: Path) -> None:
    for folder in (read_only, read_only / "cache"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                DiskStore(folder, LAYOUT, limit=1 << 30)
            except InvalidRequest as error:
                said = str(error)
                code = 0 if "cannot be used" in said and str(folder) in said else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def test_two_models_side_by_side_in_one_directory(
    make_engine: MakeEngine, tiny_llama_dir: Path, tmp_path: Path
) -> None:
    """Same shape, other weights: each finds its own, and leaves the other's alone."""
    import torch
    from safetensors.torch import load_file, save_file

    other = tmp_path / "other-model"
    shutil.copytree(tiny_llama_dir, other)
    weights = load_file(str(other / "model.safetensors"))
    torch.manual_seed(1)
    changed = {k: v + 0.01 * torch.randn_like(v) for k, v in weights.items()}
    save_file(changed, str(other / "model.safetensors"), metadata={"format": "pt"})
    ids = prompt(2, 120)
    options = {"page_size": 16, "disk_cache": str(tmp_path / "cache"), "load_policy": "always"}
    said: dict[str, Any] = {}
    for _ in range(2):
        for model in (str(tiny_llama_dir), str(other)):
            engine = make_engine(model=model, **options)
            out = engine.generate(ids, GREEDY)
            assert out.cache.cached_by_tier["disk"] == (112 if model in said else 0)
            assert said.setdefault(model, answer(out)) == answer(out)
            engine.close()
    first, second = said.values()
    assert first != second
    assert len(list((tmp_path / "cache" / "groups").iterdir())) == 2


def test_a_throttled_disk_is_declined_and_used_again_when_it_is_fast(
    make_engine: MakeEngine,
    cold: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentkv.engine.kv.tiers.SAMPLE_SECONDS", 0.0)
    engine = make_engine(pool_tokens=POOL, page_size=16, disk_cache=str(tmp_path))
    ids = prompt(3, 240)
    engine.generate(ids, GREEDY)
    engine.close()
    engine = make_engine(pool_tokens=POOL, page_size=16, disk_cache=str(tmp_path))
    lower = engine._core.lower
    assert lower is not None

    def from_disk() -> int:
        engine.flush()
        lower.costs.prefill.first, lower.costs.prefill.second = 1e-3, 0.0  # a second a thousand
        lower.costs.prefill.seen.clear()
        out = engine.generate(ids, GREEDY)
        assert answer(out) == cold(ids)
        return out.cache.cached_by_tier["disk"]

    assert from_disk() == 224
    with throttled(lower.store, 224 * lower.costs.token_bytes["disk"] / 1.0):  # a second a load
        loads = [from_disk() for _ in range(4)]
        assert loads[-1] == 0, loads
        assert engine.stats()["tiers"]["disk"]["declined_tokens_total"] >= 224
        settled(engine)
    end = time.monotonic() + 30
    while from_disk() == 0:  # each time a little is read in the background
        assert time.monotonic() < end
        time.sleep(0.02)
    settled(engine)


def test_a_disk_that_stays_full_is_reported_now_and_then(
    make_engine: MakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = make_engine(pool_tokens=POOL, page_size=16, disk_cache=str(tmp_path))
    lower = engine._core.lower
    assert lower is not None
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(
        "agentkv.engine.kv.disk.os.fsync", lambda handle: (_ for _ in ()).throw(full)
    )
    for seed in range(4):
        engine.generate(prompt(seed, 100), GREEDY)
        engine.save()
        settled(engine)
    assert engine.stats()["tiers"]["disk"]["failed_transfers_total"] >= 3
    said = [r.getMessage() for r in caplog.records if "between tiers failed" in r.getMessage()]
    assert len(said) == 1 and "No space left" in said[0]
    lower.mover._quiet_until = 0.0
    engine.generate(prompt(9, 100), GREEDY)
    engine.save()
    settled(engine)
    assert "more since the last message" in caplog.text
