"""Loads and the queue: aborted, failed, late, in each other's way."""

from __future__ import annotations

from agentkv.engine.kv.backed import DISK, HOST, BackedNode, BackedTree
from agentkv.engine.kv.tiers import Tiers
from agentkv.engine.sched.request import Request, Status
from tests.engine.sched.conftest import Device


def lower_of(device: Device) -> tuple[Tiers, BackedTree]:
    lower, tree = device.cache.tiers, device.cache.tree
    assert lower is not None and isinstance(tree, BackedTree)
    return lower, tree


def evict_all(device: Device) -> None:
    cache = device.cache
    freed = cache.tree.evict(10_000)
    cache.pages.free(freed[:: cache.page_size] // cache.page_size)


def on_host(device: Device, ids: list[int]) -> None:
    """Compute a prompt, and have it evicted from the device."""
    device.submit(ids, 1)
    device.drain()
    evict_all(device)


def settled(device: Device) -> None:
    lower, tree = lower_of(device)
    assert not lower.transfers and lower.loading_pages == lower.moving_pages == 0
    assert tree.locked_tokens == 0
    assert all(n.holds == 0 for n in tree.nodes() if isinstance(n, BackedNode))
    device.scheduler.check(deep=True)


def test_a_thousand_aborted_loads_and_then_one_that_works() -> None:
    device = Device(64, host_pages=64)
    on_host(device, list(range(40)))
    for _ in range(1000):
        request = device.submit([*range(40), 7])
        assert device.scheduler.schedule() is None
        assert request.load is not None
        device.scheduler.abort(request)
        assert request.status is Status.FINISHED
        device.mover.end_one(0)
        evict_all(device)  # what came for nobody stays, and would be a hit of the next one
    settled(device)
    device.mover.at_once = True
    request = device.submit([*range(40), 7], 2)
    device.drain()
    assert request.loaded == {"host": 40} and request.cached_tokens == 40
    settled(device)


def test_a_load_in_flight_keeps_its_copy_though_the_host_is_full() -> None:
    device = Device(96, host_pages=48)
    on_host(device, list(range(40)))
    request = device.submit([*range(40), 7], 2)
    assert device.scheduler.schedule() is None and request.load is not None
    _, tree = lower_of(device)
    # Others evict from the device, and want the host's room.
    for seed in range(1, 5):
        other = device.submit([1000 * seed + i for i in range(45)], 1)
        while other.status is not Status.FINISHED:
            assert device.step() is not None
        evict_all(device)
    assert tree.backed_tokens[HOST] >= 40
    device.mover.end_one(0)
    device.drain()
    assert request.loaded == {"host": 40}
    settled(device)


def test_two_that_want_the_same_load_once() -> None:
    device = Device(128, host_pages=64)
    on_host(device, list(range(40)))
    first, second = (device.submit([*range(40), n], 2) for n in (7, 8))
    assert device.scheduler.schedule() is None
    assert len(device.mover.moving) == 1
    device.mover.end_one(0)
    device.drain()
    assert first.cached_tokens == second.cached_tokens == 40
    assert lower_of(device)[0].counts[HOST].loaded == 40
    settled(device)


def test_a_load_that_fails_is_computed() -> None:
    device = Device(64, host_pages=64)
    on_host(device, list(range(40)))
    request = device.submit([*range(40), 7], 2)
    device.scheduler.schedule()
    device.mover.end_one(0, OSError("gone"))
    device.drain()
    assert request.cached_tokens == 0 and request.output.tolist() == device.alone(
        [*range(40), 7], 2
    )
    assert lower_of(device)[0].counts[HOST].failed == 1
    settled(device)


def test_others_run_while_one_waits_for_its_load() -> None:
    device = Device(128, host_pages=64)
    on_host(device, list(range(40)))
    waiting = device.submit([*range(40), 7], 2)
    running = device.submit([500, 501, 502], 3)
    for _ in range(10):
        device.step()
    assert running.status is Status.FINISHED and waiting.status is Status.WAITING
    device.mover.end_one(0)
    device.drain()
    assert waiting.cached_tokens == 40
    settled(device)


def test_a_full_pool_of_loads_gives_way() -> None:
    """What was loaded for many must not starve all of them."""
    device = Device(64, host_pages=400, max_running=2)
    prompts = [[100 * n + i for i in range(40)] for n in range(4)]
    for ids in prompts:
        on_host(device, ids)
    requests: list[Request] = [device.submit([*ids, 7], 20) for ids in prompts]
    for _ in range(400):
        if device.scheduler.idle:
            break
        device.step()
        device.mover.end_one(0)
    assert all(r.status is Status.FINISHED for r in requests)
    assert all(r.sampled == 20 for r in requests)
    settled(device)


def test_what_is_on_disk_outlives_a_flush_and_what_is_on_the_host_does_not() -> None:
    device = Device(128, host_pages=64, tiers={"disk": True})
    device.mover.at_once = True
    on_host(device, list(range(40)))
    lower, tree = lower_of(device)
    lower.work()
    assert tree.backed_tokens[DISK] == 40
    device.cache.flush()
    assert tree.backed_tokens == [0, 0]
    request = device.submit([*range(40), 7], 2)
    device.drain()
    assert request.loaded == {"disk": 40}
    settled(device)
