"""One copy a step from two pinned buffers, neither written while it is read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentkv.engine.attention.packing import pack, places, unpack, upload
from agentkv.engine.run import staging
from agentkv.engine.run.staging import Staging
from agentkv.engine.types import IntArray
from tests.engine.run.fake_device import FakeDevice, Race


def tables(*sizes: int, seed: int = 0) -> list[IntArray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-5, 1 << 30, n).astype(np.int32) for n in sizes]


def test_tables_begin_at_sixteen_bytes() -> None:
    given = tables(5, 0, 4, 1, 7)
    starts, size = places([len(t) for t in given])
    assert starts == [0, 8, 8, 12, 16] and size == 24
    flat = np.full(30, 77, dtype=np.int32)
    assert pack(given, flat) == size
    assert flat[24:].tolist() == [77] * 6
    for found in (
        unpack(torch.from_numpy(flat), [len(t) for t in given]),
        upload(given, torch.device("cpu")),
    ):
        assert [f.tolist() for f in found] == [t.tolist() for t in given]
        assert all(f.storage_offset() % 4 == 0 for f in found)


def test_what_is_sent_arrives_in_one_copy() -> None:
    device = FakeDevice()
    stage = Staging(device)
    for seed in range(5):
        given = tables(3, 8 + seed, 0, 100, seed=seed)
        found = stage.send(given)
        assert [f.tolist() for f in found] == [t.tolist() for t in given]
    assert device.log.count("compute: up") == 5
    device.check()


def test_buffers_grow_and_a_target_of_ones_own_is_kept() -> None:
    device = FakeDevice()
    stage = Staging(device)
    target = torch.zeros(1 << 16, dtype=torch.int32)
    for size in (10, 3 * staging.LEAST, 20):
        [found] = stage.send(tables(size), target)
        assert found.data_ptr() == target.data_ptr() and found.tolist() == tables(size)[0].tolist()
        [other] = stage.send(tables(size, seed=1))
        assert other.data_ptr() != target.data_ptr()
        assert other.tolist() == tables(size, seed=1)[0].tolist()
    assert target[20:30].tolist() == tables(3 * staging.LEAST)[0][20:30].tolist()


def test_a_buffer_waits_for_its_last_copy() -> None:
    device = FakeDevice()
    stage = Staging(device)
    for seed in range(4):
        stage.send(tables(9, seed=seed))
    # Two go out at once; from the third on, the copy before last has to have passed.
    assert [entry for entry in device.log if "event" not in entry] == [
        *["compute: up"] * 2,
        *["host waits for compute", "compute: up"] * 2,
    ]


def test_a_buffer_that_does_not_wait_is_found_out() -> None:
    """That the tests above can fail."""
    device = FakeDevice()
    stage = Staging(device)
    with pytest.raises(Race):
        for seed in range(4):
            stage.send(tables(9, seed=seed))
            stage._sent = [None] * staging.BUFFERS
