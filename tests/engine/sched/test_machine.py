"""Scheduler, tree and pages under random traffic, against a simulated device.

After each rule: pages are conserved, no page has two owners. In each step: every slot that is read
holds the K/V of exactly the prefix that the reader thinks it does. At the end of each request: the
answer equals the one of a cold device that served nothing else.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv import tiers
from agentkv.engine.kv.backed import DISK, HOST, BackedNode, BackedTree
from agentkv.engine.kv.eviction import POLICIES
from agentkv.engine.kv.tree import KEEPS, Keep
from agentkv.engine.sched.request import Request, Status
from tests.engine.sched.conftest import Device

BASE = [
    3,
    1,
    4,
    1,
    5,
    9,
    2,
    6,
    5,
    3,
    5,
    8,
    9,
    7,
    9,
    3,
    2,
    3,
    8,
    4,
    6,
    2,
    6,
    4,
    3,
    3,
    8,
    3,
    2,
    7,
] * 2


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        page=st.sampled_from([1, 4, 16]),
        policy=st.sampled_from(["lpm", "dfs-weight", "fcfs"]),
        budget=st.sampled_from([5, 32]),
        fixed=st.sampled_from([None, 1, 8]),
        roomy=st.booleans(),
        eviction=st.sampled_from(sorted(POLICIES)),
        share=st.sampled_from([(0, None), (16, 32)]),
    )
    def start(
        self,
        page: int,
        policy: str,
        budget: int,
        fixed: int | None,
        roomy: bool,
        eviction: str,
        share: tuple[int, int | None],
    ) -> None:
        tokens = 400 if roomy else 64
        self.now = 0.0
        self.device = Device(
            tokens,
            page,
            vocab=5,
            cache={
                "eviction": POLICIES[eviction],
                "floor": share[0],
                "quota": share[1],
                "clock": lambda: self.now,
            },
            max_batch_tokens=budget,
            fixed_tokens=fixed,
            max_running=4,
            policy=policy,
        )
        self.steps: list[Any] = []  # planned and run, not committed
        self.open: list[Request] = []
        self.first_facts: dict[str, int] = {}
        self.expected: dict[tuple[tuple[int, ...], int], list[int]] = {}

    @rule(
        shared=st.integers(0, 40),
        own=st.lists(st.integers(0, 4), min_size=1, max_size=8),
        max_new=st.integers(0, 12),
        salt=st.sampled_from(["", "", "x"]),
        role=st.integers(-1, 2),
    )
    def submit(self, shared: int, own: list[int], max_new: int, salt: str, role: int) -> None:
        if len(self.device.scheduler.waiting) >= 6:
            return
        ids = [*BASE[:shared], *own]
        marks = ((shared, role), (len(ids), -1))
        namespace = (("salt", salt),)
        self.open.append(self.device.submit(ids, max_new, namespace=namespace, marks=marks))

    @rule(kind=st.sampled_from(KEEPS), tokens=st.integers(1, 40), ttl=st.integers(1, 9))
    def pin(self, kind: Keep, tokens: int, ttl: int) -> None:
        pins = self.device.cache.pins
        with contextlib.suppress(InvalidRequest):
            pin = pins.add(kind, (("salt", ""),), np.array(BASE[:tokens], dtype=np.int32), ttl)
            assert pin.tokens <= tokens
        assert self.device.cache.tree.kept_tokens[kind] <= pins.budget[kind]

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.device.cache.pins.expire()

    @rule(tokens=st.integers(1, 40))
    def release_branch(self, tokens: int) -> None:
        tree = self.device.cache.tree
        found = tree.match((("salt", ""),), np.array(BASE[:tokens], dtype=np.int32))
        if found.length and found.offset == len(found.node.ids):
            tree.demote(found.node)

    @rule(tokens=st.integers(1, 40))
    def prefetch(self, tokens: int) -> None:
        if len(self.device.scheduler.waiting) < 6:
            namespace = (("salt", ""),)
            request = self.device.submit(BASE[:tokens], 0, namespace=namespace, prefetch=True)
            self.open.append(request)

    @rule(pick=st.integers(0, 99))
    def abort(self, pick: int) -> None:
        if self.open:
            self.device.scheduler.abort(self.open[pick % len(self.open)])

    @rule()
    def schedule(self) -> None:
        """The next step; it may be planned before the last one is committed."""
        if len(self.steps) < 2:
            step = self.device.scheduler.schedule()
            if step is not None:
                self.steps.append((step, self.device.run(step)))
            elif not self.steps:
                self.nothing_runs()

    def nothing_runs(self) -> None:
        assert self.device.scheduler.idle, "work waits and nothing runs"

    @rule()
    def commit(self) -> None:
        if self.steps:
            self.device.scheduler.commit(*self.steps.pop(0))

    @rule()
    def whole_step(self) -> None:
        self.settle()
        self.schedule()
        self.commit()

    @rule(count=st.integers(2, 6))
    def overlapped(self, count: int) -> None:
        for _ in range(count):
            self.schedule()
            self.schedule()
            self.commit()

    def settle(self) -> None:
        while self.steps:
            self.commit()

    @rule(pick=st.integers(0, 1))
    def fail(self, pick: int) -> None:
        if len(self.steps) > pick:
            self.device.scheduler.drop(self.steps.pop(pick)[0])

    @rule()
    def flush(self) -> None:
        self.device.cache.flush()

    @rule(pages=st.integers(1, 20))
    def evict(self, pages: int) -> None:
        cache = self.device.cache
        freed = cache.tree.evict(pages * cache.page_size)
        cache.pages.free(freed[:: cache.page_size] // cache.page_size)

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "device"):
            return
        self.device.scheduler.check(deep=True)
        for request in list(self.open):
            if request.cached_tokens is not None:
                fixed = self.first_facts.setdefault(request.id, request.cached_tokens)
                assert request.cached_tokens == fixed <= request.prompt_len - 1
            if request.status is Status.FINISHED:
                self.open.remove(request)
                assert request.handle is None
                self.judge(request)

    def judge(self, request: Request) -> None:
        """The tokens of an ended request are those of a cold device (as far as it came)."""
        key = (tuple(request.ids[: request.prompt_len].tolist()), request.max_new)
        if key not in self.expected:
            self.expected[key] = self.device.alone(list(key[0]), request.max_new)
        got = request.output.tolist()
        assert got == self.expected[key][: len(got)]
        if request.finish_reason != "abort":
            assert len(got) == request.max_new

    def teardown(self) -> None:
        if not hasattr(self, "device"):
            return
        self.settle()
        self.device.drain()
        self.holds()
        cache = self.device.cache
        self.wait(10)
        assert cache.tree.kept_tokens == dict.fromkeys(KEEPS, 0)
        assert cache.tree.locked_tokens == cache.private_pages == 0
        assert cache.available_pages == cache.total_pages


class TieredMachine(SchedulerMachine):
    """The same traffic with lower tiers, whose transfers end late, badly, or not before the end."""

    @initialize(
        page=st.sampled_from([1, 4, 16]),
        budget=st.sampled_from([5, 32]),
        fixed=st.sampled_from([None, 1, 8]),
        host=st.sampled_from([8, 64, 400]),
        disk=st.booleans(),
        write=st.sampled_from(["back", "through"]),
        least=st.sampled_from([1, 16]),
        groups=st.sampled_from([1, 3, 1000]),
        file=st.sampled_from([16, 4096]),
    )
    def start(
        self,
        page: int,
        budget: int,
        fixed: int | None,
        host: int,
        disk: bool,
        write: str,
        least: int,
        groups: int,
        file: int,
    ) -> None:
        tiers.LEAST_LOAD = least
        self.now = 0.0
        self.device = Device(
            64,
            page,
            vocab=5,
            cache={"eviction": POLICIES["role"], "clock": lambda: self.now},
            host_pages=host,
            tiers={"disk": disk, "write": write, "hits": 1, "most_stored": file},
            max_batch_tokens=budget,
            fixed_tokens=fixed,
            max_running=4,
        )
        self.device.mover.most_groups = groups
        self.steps: list[Any] = []  # planned and run, not committed
        self.open: list[Request] = []
        self.first_facts: dict[str, int] = {}
        self.expected: dict[tuple[tuple[int, ...], int], list[int]] = {}

    @rule(
        start=st.integers(0, 8),
        shared=st.integers(17, 34),
        steps=st.integers(6, 14),
        max_new=st.integers(0, 6),
        deep=st.booleans(),
    )
    def come_back(self, start: int, shared: int, steps: int, max_new: int, deep: bool) -> None:
        """A prompt runs, leaves the device (and the host), and is asked for again."""
        if len(self.device.scheduler.waiting) >= 6:
            return
        ids = BASE[start : start + shared]
        self.submit_ids([*ids, 1], max_new)
        for _ in range(steps):
            self.whole_step()
        self.evict(20)
        if deep:
            self.complete(0)
            self.evict_host(20)
        self.submit_ids([*ids, 2], max_new)
        self.whole_step()

    def submit_ids(self, ids: list[int], max_new: int) -> None:
        self.open.append(self.device.submit(ids, max_new, namespace=(("salt", ""),)))

    @rule(pages=st.integers(1, 20))
    def evict_host(self, pages: int) -> None:
        lower, tree = self.device.cache.tiers, self.device.cache.tree
        assert lower is not None and isinstance(tree, BackedTree)
        slots = tree.evict_back(HOST, pages * tree.page_size)
        lower.host_pages.free(slots[:: tree.page_size] // tree.page_size)

    @rule(pick=st.integers(0, 9))
    def complete(self, pick: int) -> None:
        self.device.mover.end_one(pick)

    @rule(pick=st.integers(0, 9), damaged=st.booleans())
    def break_off(self, pick: int, damaged: bool) -> None:
        moving = self.device.mover.moving
        if moving:
            transfer, done = moving.pop(pick % len(moving))
            if damaged and transfer.kind == "load":
                self.device.mover.damage(transfer)
            self.device.mover.end(transfer, done, OSError("the disk is gone"))

    def nothing_runs(self) -> None:
        if not self.device.scheduler.idle:
            lower = self.device.cache.tiers
            assert lower is not None and lower.transfers, "nothing runs"

    @rule()
    def store_everything(self) -> None:
        lower = self.device.cache.tiers
        assert lower is not None
        lower.store_all()
        lower.work()

    def teardown(self) -> None:
        if not hasattr(self, "device"):
            return
        mover = self.device.mover
        mover.at_once = True
        while mover.moving:
            mover.end_one(0)
        super().teardown()
        while mover.moving:
            mover.end_one(0)
        lower, tree = self.device.cache.tiers, self.device.cache.tree
        assert lower is not None and isinstance(tree, BackedTree)
        assert not lower.transfers and lower.loading_pages == lower.moving_pages == 0
        assert all(n.holds == 0 for n in tree.nodes() if isinstance(n, BackedNode))
        lower.work()
        assert lower.host_pages.free_pages * tree.page_size + tree.backed_tokens[HOST] == (
            lower.host_pages.total * tree.page_size
        )
        for group in list(mover.groups):
            lower.seen(group.namespace, group.ids)  # what a flush left on disk
        tree.check()
        known = [n.back[DISK] for n in tree.nodes() if isinstance(n, BackedNode)]
        referred = [s for slots in known if slots is not None for s in slots.tolist()]
        live = [s for g in mover.groups for s in g.live]
        # The tree may still name files that were found damaged; it never forgets one that is there.
        assert len(set(referred)) == len(referred)
        assert set(live) <= set(referred)
        tiers.LEAST_LOAD = 16


# 100 runs of 100 steps: 10,000 in all.
SchedulerMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=100, deadline=None
)
TestSchedulerMachine = SchedulerMachine.TestCase

TieredMachine.TestCase.settings = SchedulerMachine.TestCase.settings
TestTieredMachine = TieredMachine.TestCase
