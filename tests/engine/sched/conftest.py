"""A simulated device: every slot remembers which prefix its K/V belongs to.

K/V of a position depends on all tokens up to it, so a slot holds a hash of that prefix. Reading a
slot that holds anything else is the bug that users see as word salad; here it fails at once. The
next token is a function of the prefix, so that answers can be compared between runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from agentkv.engine.kv.backed import DISK
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.costs import Costs, Link
from agentkv.engine.kv.tiers import Done, Tiers, Transfer
from agentkv.engine.sched.request import Request, Status
from agentkv.engine.sched.scheduler import Scheduler, Step


class Device:
    def __init__(
        self,
        tokens: int,
        page_size: int = 1,
        *,
        vocab: int = 50,
        cache: dict[str, object] | None = None,
        host_pages: int = 0,
        tiers: dict[str, object] | None = None,
        **options: object,
    ) -> None:
        pages = -(-tokens // page_size)
        self.mover = SimMover(self)
        if host_pages:
            cache = {**(cache or {}), "lower": self._lower(host_pages, **(tiers or {}))}
        self.cache = KVCache(pages, page_size, **(cache or {}))  # type: ignore[arg-type]
        self.scheduler = Scheduler(self.cache, **options)  # type: ignore[arg-type]
        self.vocab = vocab
        self.memory = [0] * (pages * page_size)
        self.computed = 0
        self.serial = 0
        self.chosen: list[int] = []
        """What the last step that ran has sampled: its tokens may not be known to the scheduler yet."""

    def _lower(self, host_pages: int, **options: object) -> Callable[..., Tiers]:
        free = {"host": Link(1e12), "disk": Link(1e12)}
        costs = Costs({"host": 1, "disk": 1}, free, prefill_rate=1.0)
        return lambda tree, pages: Tiers(
            tree,
            pages,
            self.mover,
            costs,
            host_pages=host_pages,
            **options,  # type: ignore[arg-type]
        )

    def prefix_hash(self, namespace: object, ids: np.ndarray) -> list[int]:
        out, state = [], hash(namespace)
        for token in ids.tolist():
            state = hash((state, token))
            out.append(state)
        return out

    def ids(self, request: Request, end: int) -> np.ndarray:
        """The first ids of a request, with those that it only expects."""
        found = request.ids[:end].copy()
        for i in np.flatnonzero(found < 0):
            found[i] = self.chosen[-1 - found[i]]
        return found

    def request(self, ids: list[int], max_new: int = 0, **options: object) -> Request:
        self.serial += 1
        prompt = np.array(ids, dtype=np.int32)
        return Request(f"r{self.serial}", prompt, max_new=max_new, **options)  # type: ignore[arg-type]

    def submit(self, ids: list[int], max_new: int = 0, **options: object) -> Request:
        request = self.request(ids, max_new, **options)
        self.scheduler.submit(request)
        return request

    def run(self, step: Step) -> list[int | None]:
        """Write what the step computes, then verify every slot that it reads. When it was planned, not
        when it is committed: a stream runs steps in the order in which they were planned."""
        batch = step.batch
        for i, work in enumerate(step.works):
            request = work.request
            ids = self.ids(request, work.start + work.count)
            hashes = self.prefix_hash(request.namespace, ids)
            rows = slice(batch.qo_indptr[i], batch.qo_indptr[i + 1])
            assert (
                batch.input_ids[rows].tolist() == request.ids[work.start :][: work.count].tolist()
            )
            assert batch.positions[rows].tolist() == list(
                range(work.start, work.start + work.count)
            )
            for slot, value in zip(batch.out_slots[rows], hashes[work.start :], strict=True):
                self.memory[slot] = value
        for i, work in enumerate(step.works):
            request = work.request
            hashes = self.prefix_hash(request.namespace, self.ids(request, work.start + work.count))
            read = batch.kv_indices[batch.kv_indptr[i] : batch.kv_indptr[i + 1]]
            assert [self.memory[s] for s in read] == hashes, f"{request.id} reads foreign K/V"
        self.computed += len(batch.input_ids)
        tokens = [
            self.prefix_hash((), self.ids(w.request, w.start + w.count))[-1] % self.vocab
            if w.samples
            else None
            for w in step.works
        ]
        self.chosen = [t for t in tokens if t is not None]
        return tokens

    def step(self) -> Step | None:
        step = self.scheduler.schedule()
        if step is not None:
            self.scheduler.commit(step, self.run(step))
        self.scheduler.check(deep=True)
        return step

    def drain(self, most: int = 10_000) -> int:
        """Run until nothing is left; the number of steps."""
        for count in range(most):
            if self.scheduler.idle:
                return count
            if self.step() is None:  # the last ones may have been prefetches
                assert self.scheduler.idle, "work waits and nothing runs"
        raise AssertionError(f"not done after {most} steps")

    def alone(self, ids: list[int], max_new: int) -> list[int]:
        """What the request answers on a cold device of its own."""
        fresh = Device(4096, vocab=self.vocab)
        request = fresh.submit(ids, max_new)
        fresh.drain()
        assert request.status is Status.FINISHED
        return request.output.tolist()


@dataclass(eq=False)
class SimGroup:
    """What one store wrote. `live`: slots that the tree still refers to."""

    namespace: Any
    ids: np.ndarray
    start: int
    slots: np.ndarray
    values: list[int]
    live: set[int]


class SimMover:
    """Lower tiers that remember prefixes as the device does. A transfer ends when it is told to."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.host: dict[int, int] = {}
        self.groups: list[SimGroup] = []
        self.most_groups = 1000
        self.moving: list[tuple[Transfer, Done]] = []
        self.at_once = False
        self._next_disk = 0

    def move(self, transfer: Transfer, done: Done) -> None:
        if self.at_once:
            self.end(transfer, done)
        else:
            self.moving.append((transfer, done))

    def save_now(self, device: np.ndarray, host: np.ndarray) -> None:
        for a, b in zip(device.tolist(), host.tolist(), strict=True):
            self.host[b] = self.device.memory[a]

    def free_disk(self, slots: np.ndarray) -> None:
        for slot in slots.tolist():
            group = self.group_of(slot)
            if group is not None:
                group.live.remove(slot)  # twice is a KeyError
                if not group.live:
                    self.groups.remove(group)

    def sample(self, *arguments: object) -> None:
        """Nothing to measure."""

    def look(self, namespace: object, ids: np.ndarray, done: object) -> bool:
        return False

    def on_disk(self, namespace: object, ids: object) -> list[tuple[np.ndarray, int, np.ndarray]]:
        return [(g.ids, g.start, g.slots) for g in self.groups if g.namespace == namespace]

    def tag(self, namespace: object) -> str:
        return repr(namespace)

    def overflow(self) -> list[tuple[str, np.ndarray, int, Callable[[], None]]]:
        out: list[tuple[str, np.ndarray, int, Callable[[], None]]] = []
        for group in self.groups[self.most_groups :]:
            tag = self.tag(group.namespace)
            out.append((tag, group.ids, group.start, partial(self.groups.remove, group)))
        return out

    def flushed(self) -> None:
        for group in self.groups:
            group.live = set(group.slots.tolist())

    def group_of(self, slot: int) -> SimGroup | None:
        return next((g for g in self.groups if slot in g.slots), None)

    def end(self, transfer: Transfer, done: Done, error: BaseException | None = None) -> None:
        if error is None:
            try:
                self._copy(transfer)
            except KeyError as gone:  # its group left the disk meanwhile
                assert transfer.kind == "load"
                error, transfer.bad = gone, [s for s in transfer.segments if s.tier == DISK]
        done(transfer, error)

    def end_one(self, pick: int, error: BaseException | None = None) -> None:
        if self.moving:
            self.end(*self.moving.pop(pick % len(self.moving)), error)

    def damage(self, transfer: Transfer) -> None:
        """The files that a load reads turn out to be bad: they are removed."""
        transfer.bad = [s for s in transfer.segments if s.tier == DISK]
        for segment in transfer.bad:
            for slot in segment.slots.tolist():
                group = self.group_of(slot)
                if group is not None:
                    self.groups.remove(group)

    def _copy(self, transfer: Transfer) -> None:
        hashes = self.device.prefix_hash(transfer.namespace, transfer.ids)[transfer.start :]
        (first, *_) = transfer.segments
        if transfer.kind == "store":
            below = [self.host[s] for s in first.slots.tolist()]
            assert below == hashes, "the host's copy is not of this prefix"
            made = np.arange(self._next_disk, self._next_disk + len(below), dtype=np.int32)
            self._next_disk += len(below)
            transfer.device = made
            self.groups.append(
                SimGroup(
                    transfer.namespace,
                    transfer.ids,
                    transfer.start,
                    made,
                    below,
                    set(made.tolist()),
                )
            )
        elif transfer.kind == "save":
            values = [self.device.memory[s] for s in transfer.device.tolist()]
            assert values == hashes, "what is saved is not of this prefix"
            self.host.update(zip(first.slots.tolist(), values, strict=True))
        else:
            at = 0
            for segment in transfer.segments:
                values = [self._value(segment.tier, s) for s in segment.slots.tolist()]
                assert values == hashes[at : at + len(values)], "a foreign copy is loaded"
                for slot, value in zip(
                    transfer.device[at : at + len(values)].tolist(), values, strict=True
                ):
                    self.device.memory[slot] = value
                at += len(values)

    def _value(self, tier: int, slot: int) -> int:
        if tier != DISK:
            return self.host[slot]
        group = self.group_of(slot)
        if group is None:
            raise KeyError(slot)
        return group.values[slot - int(group.slots[0])]


@pytest.fixture
def device() -> Callable[..., Device]:
    return Device
