"""On which thread K/V comes up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from agentkv.engine.kv.backed import DISK, HOST, Segment
from agentkv.engine.kv.mover import PoolMover
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.kv.tiers import Transfer


def load(tier: int, count: int) -> Transfer:
    slots = np.arange(count, dtype=np.int32)
    return Transfer(
        id=1,
        kind="load",
        namespace=(),
        ids=slots,
        start=0,
        generation=0,
        device=slots + np.int32(7),
        segments=[Segment(0, count, tier, slots)],
    )


class Rig:
    """A mover, and what it has told to whoever owns the tree."""

    def __init__(self) -> None:
        self.device, self.host = (
            KVPool(layers=2, slots=64, kv_heads=1, head_dim=4, dtype=torch.float32)
            for _ in range(2)
        )
        for layer in range(2):
            self.host.layer(layer).normal_()
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.ended: list[tuple[BaseException | None, str]] = []
        self.by: list[str] = []
        self.mover = PoolMover(self.device, self.host, 1, self.posted.put)
        up = self.mover.copies.up

        def watched(*what: object) -> None:
            self.by.append(threading.current_thread().name)
            up(*what)  # type: ignore[arg-type]

        self.mover.copies.up = watched  # type: ignore[assignment, method-assign]

    def done(self, transfer: Transfer, error: BaseException | None) -> None:
        self.ended.append((error, threading.current_thread().name))


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.mover.close()


def test_a_little_from_memory_is_there_at_once(rig: Rig) -> None:
    me = threading.current_thread().name
    rig.mover.move(load(HOST, 20), rig.done)
    assert rig.ended == [(None, me)] and rig.by == [me] and rig.posted.empty()
    for layer in range(2):
        assert torch.equal(rig.device.layer(layer)[:, 7:27], rig.host.layer(layer)[:, :20])


@pytest.mark.parametrize("most", [0, 20 * 2 * 2 * 4 * 4 - 1])
def test_much_of_it_comes_while_others_compute(rig: Rig, most: int) -> None:
    rig.mover.copies.at_once_bytes = most
    rig.mover.move(load(HOST, 20), rig.done)
    assert rig.ended == [], "its end is told between two steps"
    rig.posted.get(timeout=10)()
    assert rig.ended == [(None, threading.current_thread().name)] and rig.by == ["agentkv-mover"]
    for layer in range(2):
        assert torch.equal(rig.device.layer(layer)[:, 7:27], rig.host.layer(layer)[:, :20])


def test_nobody_waits_for_a_file(rig: Rig) -> None:
    """There is no disk here: the load fails, and on the mover's thread."""
    rig.mover.move(load(DISK, 2), rig.done)
    assert rig.ended == []
    rig.posted.get(timeout=10)()
    assert len(rig.ended) == 1 and rig.ended[0][0] is not None


def test_a_fault_at_once_is_an_end_like_any_other(rig: Rig) -> None:
    def fails(*what: object) -> None:
        raise MemoryError("no")

    rig.mover.copies.up = fails  # type: ignore[assignment, method-assign]
    rig.mover.move(load(HOST, 20), rig.done)
    assert len(rig.ended) == 1 and isinstance(rig.ended[0][0], MemoryError)


def test_nobody_else_computes_with_fewer_threads() -> None:
    """The mover's thread has one; those that start later, such as the next engine's, have what they had."""
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        rig = Rig()
        later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        later.start()
        later.join()
        told = threading.Event()
        rig.mover._jobs.put((0, 0, lambda: seen.append(torch.get_num_threads())))
        rig.mover._jobs.put((1, 0, told.set))
        assert told.wait(10)
        rig.mover.close()
        assert torch.get_num_threads() == 3 and seen == [3, 1]
    finally:
        torch.set_num_threads(before)
