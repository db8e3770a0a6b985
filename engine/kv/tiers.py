"""Tiers: what is copied down before it is evicted, and what is brought back before it is computed.

    device (KVPool) <-> host (a pool in RAM) <-> disk (files and an index)

What must always hold (letters refer to the invariants in the design):

- A transfer pins both ends until it is done: the device path by a lock, the copies by a hold (U).
- A load is all or nothing: pages for all of it are there before it starts; when it ends well they
  are published at once, when it fails they are all given back (V).
- Every slot that a transfer took has one way back: the tree on success, its allocator otherwise.
  An abort changes nothing of that; the transfer ends when it ends, and then lets go (W).
- Loading is worth it only where the measured model of costs says so (Z).

Moving bytes is the `Mover`'s business, and may take as long as it likes; its `done` is called on
the thread that owns the tree. This room sees slots and token ids, never tensors or files.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from agentkv.engine.kv.backed import DISK, HOST, TIERS, BackedNode, BackedTree, Segment
from agentkv.engine.kv.costs import Costs, Estimate
from agentkv.engine.kv.pages import PageAllocator
from agentkv.engine.kv.tree import Namespace, Node, TreeError
from agentkv.engine.types import IntArray

if TYPE_CHECKING:
    from agentkv.engine.sched.request import Request

HostWrite = Literal["back", "through", "off"]

SAMPLE_SECONDS, SAMPLE_BYTES = 5.0, 1 << 20
"""How often a tier that is declined is measured, and by how much."""

LEAST_LOAD = 16
"""Fewer tokens than this are computed sooner than any transfer has begun."""


@dataclass(slots=True)
class Transfer:
    """Tokens `[start, end)` of the prefix `ids`, on their way between two tiers.

    `kind`: `save` (device to host), `store` (host to disk), `load` (host and disk to device).
    `device`: slots there, int32 `[end - start]`; empty for a store. `segments`: the other end.
    """

    id: int
    kind: Literal["save", "store", "load"]
    namespace: Namespace
    ids: IntArray
    start: int
    generation: int
    device: IntArray
    segments: list[Segment]
    lock: Node | None = None
    hold: BackedNode | None = None
    request: Request | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Filled in by the mover: how long it moved bytes, by tier."""
    bad: list[Segment] = field(default_factory=list)
    """Filled in by the mover: segments on disk whose copy turned out to be unusable."""

    @property
    def end(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        return len(self.ids) - self.start


Done = Callable[[Transfer, BaseException | None], None]
OnDisk = Sequence[tuple[IntArray, int, IntArray]]
"""Of a prefix, parents first: token ids up to the end of a part, where it starts, and its slots."""


class Mover(Protocol):
    """Copies K/V between tiers."""

    def move(self, transfer: Transfer, done: Done) -> None:
        """Start; `done` is called later, once, on the tree's thread, or before this returns."""

    def save_now(self, device: IntArray, host: IntArray) -> None:
        """Copy device slots to host slots, now."""

    def free_disk(self, slots: IntArray) -> None:
        """The tree let go of these disk slots."""

    def on_disk(self, namespace: Namespace, ids: IntArray) -> OnDisk:
        """What the disk is known to have of a prefix, parents first. Answers at once."""

    def look(self, namespace: Namespace, ids: IntArray, done: Callable[[OnDisk], None]) -> bool:
        """Ask a store that others write to what it has of a prefix; `done` is called later, once,
        on the tree's thread. False, and nothing is called, when there is nobody to ask."""

    def sample(
        self,
        namespace: Namespace,
        ids: IntArray,
        slots: IntArray,
        done: Callable[[float | None], None],
    ) -> None:
        """Read tokens from disk for nothing, when there is nothing else to do; `done` is told the
        seconds it took, or None, later, on the tree's thread."""

    def overflow(self) -> list[tuple[str, IntArray, int, Callable[[], None]]]:
        """What has to leave the disk: tag of the namespace, prefix, start, and what removes it."""

    def tag(self, namespace: Namespace) -> str:
        """The disk's name for a namespace."""

    def flushed(self) -> None:
        """The tree has forgotten everything."""


@dataclass(slots=True)
class TierCounts:
    """Of one lower tier, over its life, in tokens unless said otherwise."""

    stored: int = 0
    loaded: int = 0
    declined: int = 0
    """Could have been loaded, but computing was expected to be faster."""
    failed: int = 0
    """Transfers that ended badly."""
    skipped: int = 0
    """Not stored since there was no room, or too much was under way."""


class Tiers:
    """The lower tiers of one cache. Not thread-safe: the tree's thread owns it.

    `host_pages` of 0: no host tier. `write`: when the host gets a copy: `back`, when the device
    evicts (copied then and there); `through`, when a prefix has been used `hits` times (in the
    background); `off`, never. `disk`: whether what reaches the host goes on to disk,
    at most `most_stored` tokens a file. `storable` says of which namespaces.
    """

    def __init__(
        self,
        tree: BackedTree,
        pages: PageAllocator,
        mover: Mover,
        costs: Costs,
        *,
        host_pages: int,
        disk: bool = False,
        write: HostWrite = "back",
        hits: int = 2,
        most_moving: int = 8,
        most_stored: int = 4096,
        storable: Callable[[Namespace], bool] = lambda namespace: True,
    ) -> None:
        if host_pages < 1:
            raise ValueError("the host tier needs at least one page; the disk tier is behind it")
        self.tree = tree
        self.device_pages = pages
        self.host_pages = PageAllocator(host_pages, roomy=False)
        self.mover = mover
        self.costs = costs
        self.disk = disk
        self.write = write
        self.hits = hits
        self.most_moving = most_moving
        self.most_stored = most_stored
        self.counts = [TierCounts() for _ in TIERS]
        self.transfers: dict[int, Transfer] = {}
        self.loading_pages = 0
        """Device pages of loads under way: neither free nor in the tree."""
        self.moving_pages = 0
        """Host pages of saves under way."""
        self._storable = storable
        self._numbers = itertools.count()
        self._to_store: list[tuple[Namespace, IntArray]] = []
        self._continues = False
        """The first of them goes on where the store under way ends."""
        self._spaces: dict[str, Namespace] = {}
        """Namespaces of which the tree knows something on disk, by the disk's name for them."""
        self._sampled = float("-inf")
        self._asking: set[str] = set()
        """Requests that wait for what a store says it has of their prefix."""
        self._page = tree.page_size
        tree.on_bury = self._buried

    # -- down

    def used(self, namespace: Namespace, ids: IntArray) -> None:
        """A prefix on the device was used or published: copy down what has earned it."""
        if self.write == "through":
            earned = self._earned(namespace, ids)
            for start, end in self.tree.missing(HOST, namespace, ids[:earned]):
                self._save(namespace, ids[:end], start)
        self.work()

    def work(self) -> None:
        """Start what waits to be started: stores to disk, one at a time, since a file is written
        behind the one that holds what comes before it."""
        self._return_freed()
        while self._to_store and not any(t.kind == "store" for t in self.transfers.values()):
            namespace, ids = self._to_store.pop(0)
            self.seen(namespace, ids)
            self._store(namespace, ids)

    @property
    def busy(self) -> bool:
        """Whether anything is under way, or waits to be written."""
        return bool(self.transfers or self._to_store)

    @property
    def locks(self) -> bool:
        """Whether a transfer under way locks tokens on the device."""
        return any(t.lock is not None for t in self.transfers.values())

    def store_all(self) -> int:
        """Queue everything that is on device or host for the disk. Returns the prefixes queued."""
        if not self.disk:
            return 0
        leaves = [
            n
            for n in self.tree.nodes()
            if isinstance(n, BackedNode)
            and (n.slots is not None or n.back[HOST] is not None)
            and not any(
                isinstance(c, BackedNode) and (c.slots is not None or c.back[HOST] is not None)
                for c in n.children.values()
            )
        ]
        count = 0
        queued = {(namespace, ids.tobytes()) for namespace, ids in self._to_store}
        for leaf in leaves:
            namespace, ids = self.tree.ids_to(leaf)
            self.seen(namespace, ids)
            if not self._storable(namespace) or self.tree.on_disk(leaf):
                continue
            count += 1
            if (namespace, ids.tobytes()) not in queued:
                self._to_store.append((namespace, ids))
        return count

    # -- up

    def seen(self, namespace: Namespace, ids: IntArray) -> None:
        """The tree learns what the disk is known to have of a prefix."""
        if self.disk:
            self._learn(namespace, self.mover.on_disk(namespace, ids))

    def looking(self, request: Request) -> bool:
        """Is a store being asked what it has of this request's prefix? It is asked once."""
        if not self.disk or request.looked == self.tree.generation:
            return False
        if request.id in self._asking:
            return True
        ids = request.tokens[: request.match_limit].copy()
        self.seen(request.namespace, ids)
        request.looked = self.tree.generation
        if len(ids) - self.tree.match(request.namespace, ids).length < LEAST_LOAD:
            return False

        def told(found: OnDisk) -> None:
            self._asking.discard(request.id)
            request.looked = self.tree.generation
            self._learn(request.namespace, found)

        if self.mover.look(request.namespace, ids, told):
            self._asking.add(request.id)
            request.looked = -1
        return request.id in self._asking

    def flushed(self) -> None:
        """Device and host were emptied; what is on disk stays, and is found again."""
        self._spaces.clear()
        self._to_store.clear()
        self._continues = False
        self._return_freed()
        if self.disk:
            self.mover.flushed()

    def coming(self, request: Request) -> bool:
        """Is a load under way that brings tokens of this request's prefix, too?"""
        for transfer in self.transfers.values():
            if transfer.kind != "load" or transfer.namespace != request.namespace:
                continue
            if transfer.generation != self.tree.generation:
                continue
            most = min(transfer.end, request.match_limit)
            first, other = transfer.ids[:most], request.tokens[:most]
            differs = first != other
            at = int(differs.argmax()) if most else 0
            shared = at if most and differs[at] else most
            if shared - transfer.start >= LEAST_LOAD:
                return True
        return False

    def wanted(self, request: Request) -> list[Segment]:
        """What a load could bring for a request; empty when there is nothing, or when computing it
        is expected to be faster."""
        segments = self.tree.backed(request.namespace, request.tokens, request.match_limit)
        tokens = sum(s.end - s.start for s in segments)
        if tokens < LEAST_LOAD:
            return []
        count = self._worth(segments)
        request.load_estimate = self._estimate(segments[:count] if count else segments)
        for s in segments[count:]:
            self.counts[s.tier].declined += s.end - s.start
        if count < len(segments):
            self._sample(request.namespace, request.tokens, segments[count:])
        return segments[:count]

    def load(
        self,
        request: Request,
        segments: list[Segment],
        take: Callable[[int], IntArray | None],
    ) -> bool:
        """Start to bring `segments` to device slots, which `take(tokens)` finds (and may evict
        for). False when it finds none; nothing has changed then.

        The live prefix before them is locked until the load has ended. `request.load` is the
        transfer until then; afterwards `request.held` locks what came, until the request opens.
        """
        tree = self.tree
        start, end = segments[0].start, segments[-1].end
        ids = request.ids[:end].copy()
        hold = tree.hold(request.namespace, ids)
        if hold is None:
            raise TreeError(f"a load of {end} tokens that the tree does not know")
        # Both ends are pinned before room is made for the load: making room evicts (D, U).
        lock = tree.lock_unused(request.namespace, tree.match(request.namespace, ids[:start]))
        device = take(end - start)
        if device is None:
            self._free_device(tree.unlock(lock))
            tree.unhold(hold)
            return False
        transfer = self._transfer(
            "load", request.namespace, ids, start, device, segments, lock=lock, hold=hold
        )
        transfer.request = request
        request.load = transfer
        self.loading_pages += len(device) // self._page
        self.mover.move(transfer, self._loaded)
        return True

    # -- the end of a transfer

    def _loaded(self, transfer: Transfer, error: BaseException | None) -> None:
        tree, request = self.tree, transfer.request
        assert request is not None and transfer.lock is not None and transfer.hold is not None
        del self.transfers[transfer.id]
        self.loading_pages -= len(transfer.device) // self._page
        request.load = None
        request.load_tried = True
        fresh = transfer.generation == tree.generation
        if error is None and fresh:
            existed = tree.insert(
                transfer.namespace,
                transfer.ids,
                np.concatenate([tree.slots(transfer.lock), transfer.device]),
            )
            # Someone may have computed some of it meanwhile: ours are duplicates then.
            self._free_device(transfer.device[: max(0, existed - transfer.start)])
            if request.waits:
                request.held = tree.lock_unused(
                    transfer.namespace, tree.match(transfer.namespace, transfer.ids)
                )
                for s in transfer.segments:
                    loaded = request.loaded.get(TIERS[s.tier], 0)
                    request.loaded[TIERS[s.tier]] = loaded + s.end - s.start
            for s in transfer.segments:
                self.counts[s.tier].loaded += s.end - s.start
            for name, seconds in transfer.seconds.items():
                lengths = [s.end - s.start for s in transfer.segments if TIERS[s.tier] == name]
                self.costs.moved(name, sum(lengths), seconds, parts=len(lengths))
        else:
            self._free_device(transfer.device)
            if error is not None:
                for tier in {s.tier for s in transfer.segments}:
                    self.counts[tier].failed += 1
        self._free_device(tree.unlock(transfer.lock))
        tree.unhold(transfer.hold)
        if fresh:
            self._forget_bad(transfer)
        self.work()

    def _saved(self, transfer: Transfer, error: BaseException | None) -> None:
        tree = self.tree
        assert transfer.lock is not None
        del self.transfers[transfer.id]
        (segment,) = transfer.segments
        self.moving_pages -= len(segment.slots) // self._page
        if error is None:
            left = tree.attach(
                HOST,
                transfer.namespace,
                transfer.ids,
                transfer.start,
                segment.slots,
                transfer.generation,
            )
            self._free_host(left)
            self.counts[HOST].stored += transfer.tokens - len(left)
            if transfer.generation == tree.generation:
                self._queue_store(transfer.namespace, transfer.ids)
        else:
            self._free_host(segment.slots)
            self.counts[HOST].failed += 1
        self._free_device(tree.unlock(transfer.lock))
        self.work()

    def _stored(self, transfer: Transfer, error: BaseException | None) -> None:
        tree = self.tree
        assert transfer.hold is not None
        del self.transfers[transfer.id]
        slots = transfer.device  # the mover says which disk slots it made
        if error is None:
            # After a flush, too: what is on disk stays, and this may have been written meanwhile.
            self.seen(transfer.namespace, transfer.ids[: transfer.start])
            self._spaces[self.mover.tag(transfer.namespace)] = transfer.namespace
            left = tree.attach(
                DISK, transfer.namespace, transfer.ids, transfer.start, slots, tree.generation
            )
            if len(left):
                self.mover.free_disk(left)
            self.counts[DISK].stored += transfer.tokens - len(left)
            self._shrink_disk()
        else:
            self.counts[DISK].failed += 1
        # What did not stay (the disk is too small for it) would be written over and over.
        if self._continues and self._to_store and not tree.on_disk(transfer.hold):
            self._to_store.pop(0)
        tree.unhold(transfer.hold)
        self.work()

    def _shrink_disk(self) -> None:
        for tag, ids, start, remove in self.mover.overflow():
            if tag in self._spaces:
                self.tree.drop(DISK, self._spaces[tag], ids, start)
            remove()

    # -- inside

    def _worth(self, segments: list[Segment]) -> int:
        """How many of the segments to load so that loading these and computing the rest is expected
        to be fastest; the last of them may be the slow one."""
        if self.costs.always:
            return len(segments)
        whole = self._estimate(segments).compute
        best, count = whole, 0
        for n, estimate in enumerate(self._estimates(segments), 1):
            spent = estimate.load + whole - estimate.compute
            if spent < best:
                best, count = spent, n
        # A few tokens are not worth a transfer.
        return count if count and segments[count - 1].end - segments[0].start >= LEAST_LOAD else 0

    def _estimate(self, segments: list[Segment]) -> Estimate:
        """Of all of them."""
        *_, last = self._estimates(segments)
        return last

    def _estimates(self, segments: list[Segment]) -> Iterator[Estimate]:
        """Of the first, the first two, and so on."""
        tokens: dict[str, int] = {}
        parts: dict[str, int] = {}
        for s in segments:
            name = TIERS[s.tier]
            tokens[name] = tokens.get(name, 0) + s.end - s.start
            parts[name] = parts.get(name, 0) + 1
            yield self.costs.estimate(tokens, parts=parts, start=segments[0].start)

    def _sample(self, namespace: Namespace, ids: IntArray, declined: list[Segment]) -> None:
        """A tier that is declined is not measured any more. So now and then, read a little of it in
        the background: it may have become fast again."""
        segment = next((s for s in declined if s.tier == DISK), None)
        link = self.costs.links[TIERS[DISK]]
        now = time.monotonic()
        if segment is None or now - max(link.measured, self._sampled) < SAMPLE_SECONDS:
            return
        most = max(self._page, SAMPLE_BYTES // self.costs.token_bytes[TIERS[DISK]])
        count = min(segment.end - segment.start, most - most % self._page)
        own = ids[segment.start : segment.start + count].copy()

        def measured(seconds: float | None) -> None:
            if seconds is not None:
                self.costs.moved(TIERS[DISK], count, seconds)

        self._sampled = now
        self.mover.sample(namespace, own, segment.slots[:count], measured)

    def _learn(self, namespace: Namespace, found: OnDisk) -> None:
        for ids, start, slots in found:
            left = self.tree.attach(DISK, namespace, ids, start, slots, self.tree.generation)
            if len(left):
                self.mover.free_disk(left)
        if found:
            self._spaces[self.mover.tag(namespace)] = namespace

    def _buried(self, node: BackedNode) -> None:
        """The device is about to evict a node: keep a copy, if that is the policy."""
        if self.write != "back" or node.back[HOST] is not None or node.slots is None:
            return
        slots = self._take_host(len(node.ids))
        if slots is None:
            self.counts[HOST].skipped += len(node.ids)
            return
        self.mover.save_now(node.slots, slots)
        self.tree.give(node, HOST, slots)
        self.counts[HOST].stored += len(slots)
        if self.disk:
            self._queue_store(*self.tree.ids_to(node))

    def _save(self, namespace: Namespace, ids: IntArray, start: int) -> None:
        if len(self.transfers) >= self.most_moving or any(
            t.kind == "save" and t.end == len(ids) and np.array_equal(t.ids, ids)
            for t in self.transfers.values()
        ):
            return
        host = self._take_host(len(ids) - start)
        if host is None:
            self.counts[HOST].skipped += len(ids) - start
            return
        tree = self.tree
        match = tree.match(namespace, ids)
        if match.length != len(ids):
            self._free_host(host)
            return
        lock = tree.lock_unused(namespace, match)
        device = tree.slots(lock)[start:]
        transfer = self._transfer(
            "save",
            namespace,
            ids.copy(),
            start,
            device,
            [Segment(start, len(ids), HOST, host)],
            lock=lock,
        )
        self.moving_pages += len(host) // self._page
        self.mover.move(transfer, self._saved)

    def _save_now(self, namespace: Namespace, ids: IntArray, start: int) -> bool:
        host = self._take_host(len(ids) - start)
        if host is None:
            self.counts[HOST].skipped += len(ids) - start
            return False
        match = self.tree.match(namespace, ids)
        lock = self.tree.lock_unused(namespace, match)
        self.mover.save_now(self.tree.slots(lock)[start : len(ids)], host)
        left = self.tree.attach(HOST, namespace, ids, start, host, self.tree.generation)
        self._free_host(left)
        self.counts[HOST].stored += len(ids) - start - len(left)
        self._free_device(self.tree.unlock(lock))
        return True

    def _store(self, namespace: Namespace, ids: IntArray) -> None:
        """Write what of a prefix is not on disk yet, at most `most_stored` tokens of it; the rest comes
        next, unless this fails."""
        tree = self.tree
        more = self._bring_down(namespace, ids)
        start, end, slots = tree.storable(namespace, ids)
        if end <= start:
            return
        if end - start > self.most_stored:
            end = start + max(self._page, self.most_stored - self.most_stored % self._page)
            slots = slots[: end - start]
            more = True
        if more:
            self._to_store.insert(0, (namespace, ids))
        self._continues = more
        prefix = ids[:end].copy()
        hold = tree.hold(namespace, prefix)
        if hold is None:
            return
        transfer = self._transfer(
            "store",
            namespace,
            prefix,
            start,
            _NONE,
            [Segment(start, end, HOST, slots)],
            hold=hold,
        )
        self.mover.move(transfer, self._stored)

    def _bring_down(self, namespace: Namespace, ids: IntArray) -> bool:
        """Files are written from the host, each behind the one with the tokens before it: copy there what
        of a prefix is in the pool only, such as the beginning that all prompts share and that never
        leaves. As much as one file takes, and half the host; returns whether more is left."""
        tree = self.tree
        on_disk = tree.missing(DISK, namespace, ids)
        gaps = [
            (max(a, c), min(b, d))
            for a, b in tree.missing(HOST, namespace, ids)
            for c, d in on_disk
            if max(a, c) < min(b, d)
        ]
        if not gaps:
            return False
        hold = tree.hold(namespace, ids)
        if hold is None:
            return False
        page = self._page
        most = max(page, min(self.most_stored, self.host_pages.total * page // 2) // page * page)
        for start, end in gaps:
            upto = min(end, start + most)
            if not self._save_now(namespace, ids[:upto], start):
                break
            most -= upto - start
            if most <= 0:
                break
        tree.unhold(hold)
        return (start, upto) != gaps[-1]

    def _queue_store(self, namespace: Namespace, ids: IntArray) -> None:
        if not self.disk or not self._storable(namespace):
            return
        if len(self._to_store) >= 64 * self.most_moving:
            self.counts[DISK].skipped += len(ids)
            return
        self._to_store.append((namespace, ids))

    def _forget_bad(self, transfer: Transfer) -> None:
        for segment in transfer.bad:
            prefix = transfer.ids[: segment.end]
            slots = self.tree.drop(DISK, transfer.namespace, prefix, segment.start)
            if len(slots):
                self.mover.free_disk(slots)

    def _earned(self, namespace: Namespace, ids: IntArray) -> int:
        """How many tokens of a prefix were used often enough: what comes behind, such as the last
        answer, seldom was. Who uses a node uses those above it."""
        match = self.tree.match(namespace, ids)
        node, end = match.node, match.length
        while node.parent is not None and node.hits < self.hits:
            node, end = node.parent, node.start
        return end if node.parent is not None else 0

    def _take_host(self, tokens: int) -> IntArray | None:
        """Host slots for `tokens` tokens, evicting there if need be; None when it cannot be."""
        need = tokens // self._page
        if need > self.host_pages.total:
            return None
        if need > self.host_pages.free_pages:
            missing = max(need - self.host_pages.free_pages, self.host_pages.total // 32)
            self._free_host(self.tree.evict_back(HOST, missing * self._page))
        self._return_freed()
        pages = self.host_pages.alloc(need)
        return None if pages is None else self._slots(pages)

    def _return_freed(self) -> None:
        self._free_host(self.tree.take_freed(HOST))
        gone = self.tree.take_freed(DISK)
        if len(gone):
            self.mover.free_disk(gone)

    def _transfer(
        self,
        kind: Literal["save", "store", "load"],
        namespace: Namespace,
        ids: IntArray,
        start: int,
        device: IntArray,
        segments: list[Segment],
        *,
        lock: Node | None = None,
        hold: BackedNode | None = None,
    ) -> Transfer:
        transfer = Transfer(
            next(self._numbers),
            kind,
            namespace,
            ids,
            start,
            self.tree.generation,
            device,
            segments,
            lock,
            hold,
        )
        self.transfers[transfer.id] = transfer
        return transfer

    def _slots(self, pages: IntArray) -> IntArray:
        grid = pages[:, None] * np.int32(self._page) + np.arange(self._page, dtype=np.int32)
        return grid.reshape(-1).astype(np.int32)

    def _free_host(self, slots: IntArray) -> None:
        if len(slots):
            self.host_pages.free(slots[:: self._page] // np.int32(self._page))

    def _free_device(self, slots: IntArray) -> None:
        if len(slots):
            self.device_pages.free(slots[:: self._page] // np.int32(self._page))

    # -- checking

    def check(self, waiting: Iterable[Request] = ()) -> None:
        """Raise `TreeError` unless every host page has one owner, and every load its pages."""
        page = self._page
        orphaned = sum(len(s) for s in self.tree.freed[HOST]) // page
        held = self.tree.backed_tokens[HOST] // page
        stale = self._stale_host()
        free, total = self.host_pages.free_pages, self.host_pages.total
        if free + held + orphaned + stale + self.moving_pages != total:
            raise TreeError(
                f"host pages are not conserved: free {free} + held {held} + freed {orphaned} + "
                f"flushed {stale} + moving {self.moving_pages} != total {total}"
            )
        loading = sum(len(t.device) for t in self.transfers.values() if t.kind == "load") // page
        if loading != self.loading_pages:
            raise TreeError(f"loads hold {loading} pages, {self.loading_pages} counted")

    def _stale_host(self) -> int:
        """Host pages below nodes of a flushed generation that transfers still hold."""
        seen: dict[int, int] = {}
        for transfer in self.transfers.values():
            walk: Node | None = transfer.hold
            while isinstance(walk, BackedNode):
                slots = walk.back[HOST]
                if walk.generation != self.tree.generation and slots is not None:
                    seen[id(walk)] = len(slots)
                walk = walk.parent
        return sum(seen.values()) // self._page


_NONE = np.empty(0, dtype=np.int32)
