"""PoolMover: copies K/V between the device's pool, the host's pool and the disk, on a thread.

Loads go before saves and stores: somebody waits for them. Bytes on disk are page by page:
`[layers, 2, page_size, kv_heads, head_dim]`, in the host pool's dtype. The two pools may differ in
dtype: what goes down is narrowed (saturating) to the host's, what comes up is widened again.

The engine's worker owns tree and scheduler; this thread touches tensors and files only, rows that
a lock or a hold pins, and hands each end of a transfer to `post`, which runs it on the worker.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import torch

from agentkv.engine.device import Event
from agentkv.engine.kv.backed import HOST, TIERS
from agentkv.engine.kv.copies import Copies
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.kv.store import Store, StoreMiss, tag_of
from agentkv.engine.kv.tiers import Done, OnDisk, Transfer
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import IntArray

log = logging.getLogger("agentkv.engine")

WARN_SECONDS = 10.0
"""Between two messages about transfers that failed."""

CHUNK_BYTES = 16 << 20
"""Read from disk and copied at a time."""


class PoolMover:
    """A `Mover` over two pools of one page format and, if given, a store on disk.

    `post(work)` must run `work` on the thread that owns the tree, some time later.
    """

    def __init__(
        self,
        device: KVPool,
        host: KVPool,
        page_size: int,
        post: Callable[[Callable[[], None]], None],
        disk: Store | None = None,
        copies: Copies | None = None,
    ) -> None:
        self.copies = copies or Copies(device, host)
        self.device = device
        self.host = host
        self.page_size = page_size
        self.disk = disk
        self._post = post
        self._jobs: queue.PriorityQueue[
            tuple[int, int, tuple[Transfer, Done, Event | None] | Callable[[], None] | None]
        ] = queue.PriorityQueue()
        self._epoch = 0
        self._numbers = itertools.count()
        self._chores: deque[Callable[[], None]] = deque()
        self._quiet_until = float("-inf")
        self._unsaid = 0
        self._used = 0
        self._alone = threading.Event()
        if disk is not None:
            disk.later = self._later
        self._thread = threading.Thread(target=self._run, name="agentkv-mover", daemon=True)
        threads = torch.get_num_threads()
        self._thread.start()
        self._alone.wait()
        # What a thread says of its own number is also what threads that start later begin with, and
        # what the matrix library goes by in all of them: the next engine would compute on one core.
        torch.set_num_threads(threads)

    # -- called by the tree's thread

    def move(self, transfer: Transfer, done: Done) -> None:
        load = transfer.kind == "load"
        size = transfer.tokens * self.host.token_bytes
        host = all(segment.tier == HOST for segment in transfer.segments)
        if load and host and size <= self.copies.at_once_bytes:
            self._carry_out(transfer, done, None)()
            return
        after = self.copies.mark() if load else self.copies.behind()
        self._jobs.put((0 if load else 1, next(self._numbers), (transfer, done, after)))

    def save_now(self, device: IntArray, host: IntArray) -> None:
        self.copies.down(device, host, self.copies.behind())
        self._touch(int(host.max()) + 1)

    def free_disk(self, slots: IntArray) -> None:
        if self.disk is not None:
            self.disk.free(slots)

    def on_disk(self, namespace: Namespace, ids: IntArray) -> OnDisk:
        if self.disk is None:
            return []
        return [(f.ids, f.start, f.slots) for f in self.disk.cover(namespace, ids)]

    def look(self, namespace: Namespace, ids: IntArray, done: Callable[[OnDisk], None]) -> bool:
        store = self.disk
        if store is None or not store.shared or store.away:
            return False
        epoch = self._epoch

        def ask() -> None:
            store.look(namespace, ids)
            found = self.on_disk(namespace, ids)
            self._post(lambda: done(found) if epoch == self._epoch else None)

        self._jobs.put((0, next(self._numbers), ask))
        return True

    def sample(
        self,
        namespace: Namespace,
        ids: IntArray,
        slots: IntArray,
        done: Callable[[float | None], None],
    ) -> None:
        store = self.disk
        if store is None:
            return
        epoch = self._epoch

        def read() -> None:
            began, spent = time.perf_counter(), None
            with contextlib.suppress(StoreMiss):  # a load of it would find out, and tell the tree
                for _ in store.read(namespace, ids, slots):
                    pass
                spent = time.perf_counter() - began
            self._post(lambda: done(spent) if epoch == self._epoch else None)

        self._jobs.put((2, next(self._numbers), read))

    def overflow(self) -> list[tuple[str, IntArray, int, Callable[[], None]]]:
        if self.disk is None:
            return []
        store = self.disk
        return [(g.tag, store.path(g), g.start, partial(store.remove, g)) for g in store.victims()]

    def tag(self, namespace: Namespace) -> str:
        return tag_of(namespace)

    def flushed(self) -> None:
        if self.disk is not None:
            self.disk.all_alive()

    def reset(self) -> None:
        """Forget what waits, and wait for what is under way: its end is not told to anybody. For every
        new cache, the first one included."""
        self._epoch += 1
        while True:
            try:
                self._jobs.get_nowait()
            except queue.Empty:
                break
        still = threading.Event()
        self._jobs.put((3, next(self._numbers), still.set))
        still.wait()
        self._tidy()
        self._touch(0)

    def close(self) -> None:
        """Stop after the transfer under way. Those that wait are never done."""
        self._jobs.put((-1, 0, None))
        self._thread.join()
        self._tidy()
        if self.disk is not None:
            self.disk.close()

    def _touch(self, used: int) -> None:
        """So many slots of the host's pool are in use, from its bottom on: see to those above."""
        self._used = max(self._used, used)
        if self.copies.touched.short(self._used):
            self._jobs.put((2, next(self._numbers), lambda: self.copies.touched.reach(self._used)))

    def _later(self, work: Callable[[], None]) -> None:
        """Removing files takes time: not on the thread that computes."""
        if threading.current_thread() is self._thread:
            work()
            return
        self._chores.append(work)
        self._jobs.put((2, next(self._numbers), self._tidy))

    # -- on the mover's thread

    def _tidy(self) -> None:
        while self._chores:
            self._do(self._chores.popleft())

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("something between tiers failed")

    def _run(self) -> None:
        # Threads of its own would fight the model's for the cores. (Asking comes first: a thread's first
        # use of torch gives it everybody's number.)
        torch.get_num_threads()
        torch.set_num_threads(1)
        self._alone.set()
        with torch.inference_mode():
            while True:
                _, _, job = self._jobs.get()
                if job is None:
                    return
                if callable(job):
                    self._do(job)
                    continue
                self._post(self._carry_out(*job))

    def _carry_out(self, transfer: Transfer, done: Done, after: Event | None) -> Callable[[], None]:
        """Returns what is to be done on the tree's thread then."""
        epoch = self._epoch
        error: BaseException | None = None
        try:
            self._transfer(transfer, after)
        except Exception as problem:
            error = problem
            if not isinstance(problem, StoreMiss):
                self._warn(transfer.kind, problem)
        return lambda: done(transfer, error) if epoch == self._epoch else None

    def _warn(self, kind: str, problem: Exception) -> None:
        """A disk that is full fails hundreds of transfers a minute, and all in the same way."""
        now = time.monotonic()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more since the last message)" if self._unsaid else ""
        self._quiet_until, self._unsaid = now + WARN_SECONDS, 0
        log.warning("a %s between tiers failed: %s%s", kind, problem, more)

    def _transfer(self, transfer: Transfer, after: Event | None) -> None:
        if transfer.kind == "save":
            self.copies.down(transfer.device, transfer.segments[0].slots, after)
        elif transfer.kind == "store":
            self._store(transfer)
        else:
            self._load(transfer, after)

    def _load(self, transfer: Transfer, after: Event | None) -> None:
        at = 0
        for segment in transfer.segments:
            began = time.perf_counter()
            count = segment.end - segment.start
            device = transfer.device[at : at + count]
            if segment.tier == HOST:
                self.copies.up(segment.slots, device, after)
            else:
                ids = transfer.ids[segment.start : segment.end]
                try:
                    self._read(transfer.namespace, ids, segment.slots, device, after)
                except StoreMiss:
                    transfer.bad.append(segment)
                    raise
            name = TIERS[segment.tier]
            spent = time.perf_counter() - began
            transfer.seconds[name] = transfer.seconds.get(name, 0.0) + spent
            at += count

    def _read(
        self,
        namespace: Namespace,
        ids: IntArray,
        slots: IntArray,
        device: IntArray,
        after: Event | None,
    ) -> None:
        if self.disk is None:
            raise StoreMiss("there is no disk tier", bad=False)
        page, size = self.page_size, self.disk.layout.page_bytes
        at_once = max(1, CHUNK_BYTES // size)
        held: list[memoryview] = []
        done = 0

        def put() -> None:
            nonlocal done
            raw = torch.frombuffer(bytearray(b"".join(held)), dtype=torch.uint8)
            pages = raw.view(self.host.dtype).view(
                len(held), self.host.layers, 2, page, self.copies.kv_heads, self.host.head_dim
            )
            layers = [
                pages[:, layer].permute(1, 0, 2, 3, 4).flatten(1, 2)
                for layer in range(self.host.layers)
            ]
            self.copies.put(layers, device[done * page : (done + len(held)) * page], after)
            done += len(held)
            held.clear()

        for view in self.disk.read(namespace, ids, slots):
            held.append(view)
            if len(held) == at_once:
                put()
        if held:
            put()

    def _store(self, transfer: Transfer) -> None:
        if self.disk is None:
            raise StoreMiss("there is no disk tier", bad=False)
        pages = list(self._pages(transfer.segments[0].slots))
        transfer.device = self.disk.write(transfer.namespace, transfer.ids, transfer.start, pages)

    def _pages(self, slots: IntArray) -> Iterator[memoryview]:
        """The pages of host slots as the disk has them."""
        page, pool = self.page_size, self.host
        count = len(slots) // page
        shape = (count, pool.layers, 2, page, self.copies.kv_heads, pool.head_dim)
        out = torch.empty(shape, dtype=pool.dtype)
        for layer, rows in enumerate(self.copies.gather(slots)):
            out[:, layer].copy_(rows.unflatten(1, (count, page)).transpose(0, 1))
        raw = out.view(torch.uint8).numpy().reshape(count, -1)
        for index in range(count):
            yield memoryview(raw[index])


def page_bytes(pool: KVPool, page_size: int) -> int:
    """Bytes of one page over all layers, K and V, of the heads that the pool has."""
    return page_size * pool.token_bytes
