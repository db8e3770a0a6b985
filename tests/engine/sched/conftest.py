"""A simulated device: every slot remembers which prefix its K/V belongs to.

K/V of a position depends on all tokens up to it, so a slot holds a hash of that prefix. Reading a
slot that holds anything else is the bug that users see as word salad; here it fails at once. The
next token is a function of the prefix, so that answers can be compared between runs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from agentkv.engine.kv.cache import KVCache
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
        **options: object,
    ) -> None:
        pages = -(-tokens // page_size)
        self.cache = KVCache(pages, page_size, **(cache or {}))  # type: ignore[arg-type]
        self.scheduler = Scheduler(self.cache, **options)  # type: ignore[arg-type]
        self.vocab = vocab
        self.memory = [0] * (pages * page_size)
        self.computed = 0
        self.serial = 0

    def prefix_hash(self, namespace: object, ids: np.ndarray) -> list[int]:
        out, state = [], hash(namespace)
        for token in ids.tolist():
            state = hash((state, token))
            out.append(state)
        return out

    def next_token(self, request: Request) -> int:
        return self.prefix_hash((), request.tokens)[-1] % self.vocab

    def request(self, ids: list[int], max_new: int = 0, **options: object) -> Request:
        self.serial += 1
        prompt = np.array(ids, dtype=np.int32)
        return Request(f"r{self.serial}", prompt, max_new=max_new, **options)  # type: ignore[arg-type]

    def submit(self, ids: list[int], max_new: int = 0, **options: object) -> Request:
        request = self.request(ids, max_new, **options)
        self.scheduler.submit(request)
        return request

    def run(self, step: Step) -> list[int | None]:
        """Write what the step computes, then verify every slot that it reads."""
        batch = step.batch
        for i, work in enumerate(step.works):
            request = work.request
            hashes = self.prefix_hash(request.namespace, request.ids[: work.start + work.count])
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
            hashes = self.prefix_hash(request.namespace, request.ids[: work.start + work.count])
            read = batch.kv_indices[batch.kv_indptr[i] : batch.kv_indptr[i + 1]]
            assert [self.memory[s] for s in read] == hashes, f"{request.id} reads foreign K/V"
        self.computed += len(batch.input_ids)
        return [self.next_token(w.request) if w.samples else None for w in step.works]

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
            assert self.step() is not None, "work waits and nothing runs"
        raise AssertionError(f"not done after {most} steps")

    def alone(self, ids: list[int], max_new: int) -> list[int]:
        """What the request answers on a cold device of its own."""
        fresh = Device(4096, vocab=self.vocab)
        request = fresh.submit(ids, max_new)
        fresh.drain()
        assert request.status is Status.FINISHED
        return request.output.tolist()


@pytest.fixture
def device() -> Callable[..., Device]:
    return Device
