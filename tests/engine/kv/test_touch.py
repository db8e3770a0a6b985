"""Memory of the host's pool that is asked for before it is used."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from agentkv.engine.kv import touch
from agentkv.engine.kv.mover import PoolMover
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.kv.touch import Touched

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's call is Linux's")


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def make(slots: int = 40_000, layers: int = 2) -> KVPool:
    return KVPool(layers=layers, slots=slots, kv_heads=2, head_dim=64, dtype=torch.float32)


@contextmanager
def moving(pool: KVPool, host: KVPool) -> Iterator[PoolMover]:
    mover = PoolMover(pool, host, 1, lambda work: work())
    mover.reset()
    try:
        yield mover
    finally:
        mover.close()


def settle(mover: PoolMover) -> None:
    """Until the mover's thread has nothing more to do."""
    still = threading.Event()
    mover._jobs.put((9, 0, still.set))
    assert still.wait(20)


@linux
def test_memory_is_there_ahead_of_its_use_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    host = make()  # 80 MiB
    monkeypatch.setattr(touch, "AHEAD_BYTES", 8 << 20)
    touched = Touched(host)
    before = resident()
    touched.reach(0)
    assert touched.slots == (8 << 20) // host.token_bytes
    grown = resident() - before
    assert 7 << 20 < grown < 24 << 20, grown
    assert not touched.short(0) and touched.short(touched.slots)
    touched.reach(30_000)
    assert resident() - before > 58 << 20 and touched.short(touched.slots)
    touched.reach(host.slots)
    assert touched.slots == host.slots and not touched.short(host.slots)


@linux
def test_what_is_written_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touch, "AHEAD_BYTES", 1 << 20)
    host = make(4000)
    rows = torch.randn(2, 100, 2, 64)
    host.put(0, slice(50, 150), rows)
    Touched(host).reach(4000)
    assert torch.equal(host.take(0, slice(50, 150)), rows)
    assert not host.layer(1).any()


def test_where_the_kernel_knows_no_such_call_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(touch, "_populate", lambda address, size: False)
    touched = Touched(make(1000))
    touched.reach(500)
    assert touched.slots == 0 and not touched.short(1000)


@linux
def test_the_mover_stays_ahead_of_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touch, "AHEAD_BYTES", 4 << 20)
    pool, host = make(2000), make()
    with moving(pool, host) as mover:
        settle(mover)
        ahead = mover.copies.touched.slots
        assert 0 < ahead < host.slots // 4
        some = np.arange(1000, dtype=np.int32)
        for start in range(0, 12_000, 1000):
            mover.save_now(some, some + np.int32(start))
            settle(mover)
            assert mover.copies.touched.slots > start + 1000
        assert mover.copies.touched.slots < host.slots
        mover.reset()
        settle(mover)
        assert not mover.copies.touched.short(12_000)
