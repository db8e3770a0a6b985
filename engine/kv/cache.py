"""KVCache: the tree and the pages as one account, and the only way in and out of it for requests.

    free + evictable + locked + private + loading == total     (pages, always; `check` shows them)

`private` are the pages of running requests past their tree-owned prefix, `loading` those that a
lower tier is being copied into. Everything that a request holds is given back by `release`, which
may be called twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from agentkv.engine.kv.backed import BackedTree
from agentkv.engine.kv.eviction import EvictionKey, hot
from agentkv.engine.kv.pages import PageAllocator
from agentkv.engine.kv.pins import Pins
from agentkv.engine.kv.tiers import Tiers
from agentkv.engine.kv.tree import RadixTree, TreeError
from agentkv.engine.types import IntArray

if TYPE_CHECKING:
    from agentkv.engine.sched.request import Request

GROW_TOKENS = 64
"""Slots a request takes ahead of its tokens, so that prompt and answer stay one run."""


class KVCache:
    """Tokens to slots. `pages`: how many pages of `page_size` tokens the pool has.

    `enabled=False` makes every match a miss and publishes nothing, on the same code path.
    `lower`: makes the tiers below the device, given the tree and the page allocator.
    `floor`, `quota`: of one namespace, see `RadixTree`; in tokens. `pin_tokens`, `pause_tokens`: how
    much of the cache pins, and pauses, may keep.
    """

    def __init__(
        self,
        pages: int,
        page_size: int = 1,
        *,
        eviction: EvictionKey = hot,
        enabled: bool = True,
        tombstone_tokens: int | None = None,
        lower: Callable[[BackedTree, PageAllocator], Tiers] | None = None,
        floor: int = 0,
        quota: int | None = None,
        pin_tokens: int | None = None,
        pause_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.page_size = page_size
        self.enabled = enabled
        self.pages = PageAllocator(pages)
        limit = (
            max(1 << 16, 4 * pages * page_size) if tombstone_tokens is None else tombstone_tokens
        )
        self.tree: RadixTree
        self.tiers: Tiers | None = None
        if lower is None or not enabled:
            self.tree = RadixTree(
                page_size, eviction=eviction, tombstone_tokens=limit, floor=floor, quota=quota
            )
        else:
            self.tree = tree = BackedTree(
                page_size, eviction=eviction, tombstone_tokens=limit, floor=floor, quota=quota
            )
            self.tiers = lower(tree, self.pages)
        size = pages * page_size
        self.pins = Pins(
            self.tree,
            {
                "pins": size // 5 if pin_tokens is None else pin_tokens,
                "pauses": size // 2 if pause_tokens is None else pause_tokens,
            },
            clock,
        )
        self.private_pages = 0
        self._offsets = np.arange(page_size, dtype=np.int32)

    @property
    def total_pages(self) -> int:
        return self.pages.total

    @property
    def available_pages(self) -> int:
        """Pages that can be had without taking any from a running request."""
        return self.pages.free_pages + self.tree.evictable_tokens // self.page_size

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    # -- a request's life

    def peek(self, request: Request) -> int:
        """How many tokens `open` would find now. Changes nothing."""
        if not self.enabled:
            return 0
        return self.tree.match(request.namespace, request.tokens, request.match_limit).length

    def open(self, request: Request) -> None:
        """Match and lock the request's longest live prefix: it becomes its tree-owned range."""
        limit = request.match_limit if self.enabled else 0
        match = self.tree.match(request.namespace, request.tokens, limit)
        request.handle = self.tree.lock(request.namespace, match)
        request.generation = self.tree.generation
        request.published = True
        self.let_go(request)
        if match.length:
            request.set_slots(0, self.tree.slots(request.handle))
        request.tree_owned = request.committed = request.scheduled = match.length
        request.allocated = match.length
        if request.cached_tokens is None:
            request.cached_tokens = match.length
            request.known_tokens = match.known

    def grow(self, request: Request, tokens: int) -> bool:
        """Make room for `tokens` computed tokens in all; evict if need be. False if it cannot be."""
        missing = self.pages_for(tokens) - request.allocated // self.page_size
        if missing <= 0:
            return True
        after = None
        if request.allocated:
            after = int(request.slots[request.allocated - 1]) // self.page_size
        pages = self._take(missing, after)
        if pages is None:
            return False
        request.set_slots(request.allocated, self._slots(pages))
        request.allocated += missing * self.page_size
        self.private_pages += missing
        return True

    def grow_ahead(self, request: Request, most: int) -> None:
        """Take up to `GROW_TOKENS` slots more than are needed now, `most` tokens in all, while
        memory is plenty. One at a time, the tails of requests that decode together interleave, and
        attention has to gather what could be read in place."""
        ahead = min(max(request.allocated, request.length) + GROW_TOKENS, most)
        if self.available_pages > self.total_pages // 4:
            self.grow(request, ahead)

    def publish(self, request: Request) -> None:
        """Hand the computed whole pages to the tree, so that others can use them at once.

        Call it only after the step that computed them is known good (J). Where someone else
        published the same tokens first, ours stay private until the end (B): the row that this
        request reads from never changes under it.
        """
        end = request.committed - request.committed % self.page_size
        if not self._may_publish(request) or not request.published or end <= request.tree_owned:
            return
        ids = request.ids[:end]
        known = self.tree.match(request.namespace, ids)
        if known.length > request.tree_owned:
            request.published = False
            return
        self.tree.insert(request.namespace, ids, request.slots[:end])
        assert request.handle is not None
        request.handle = self.tree.relock(request.namespace, request.handle, ids)
        self.private_pages -= (end - request.tree_owned) // self.page_size
        request.tree_owned = end

    def release(self, request: Request) -> None:
        """Give back all that the request holds: the only exit, for finish, abort and retraction.

        Computed whole pages go to the tree first, duplicates and the rest to the free list. Doing it
        twice does nothing.
        """
        self.let_go(request)
        if request.handle is None:
            return
        start, end = request.tree_owned, request.tree_owned
        if self._may_publish(request):
            end = max(start, request.committed - request.committed % self.page_size)
        if end > start:
            existed = self.tree.insert(request.namespace, request.ids[:end], request.slots[:end])
            if existed < start:
                raise TreeError(f"{start} tree-owned tokens, of which the tree knows {existed}")
            self._free(request.slots[start:existed])
        if end and request.marks and self._may_publish(request):
            self.tree.mark(request.namespace, request.ids[:end], request.marks)
        self._free(request.slots[end : request.allocated])
        self.private_pages -= (request.allocated - start) // self.page_size
        if self.tiers is not None and self._may_publish(request):
            self.tiers.used(request.namespace, request.ids[:end])
        self._free(self.tree.unlock(request.handle))
        request.handle = None
        request.computed = end
        request.tree_owned = request.committed = request.scheduled = request.allocated = 0

    # -- from lower tiers

    def load(self, request: Request) -> bool:
        """Start to bring back what lower tiers have of a waiting request's prefix, if that is
        expected to be faster than computing it. True while it is under way."""
        if self.tiers is None:
            return False
        if request.load is not None:
            return True
        if request.held is not None and request.held.generation != self.tree.generation:
            self.give_up(request)
        if request.load_tried:
            return False
        if self.tiers.looking(request) or self.tiers.coming(request):
            return True
        segments = self.tiers.wanted(request)
        if segments and self.tiers.loading_pages:
            # Half of the pool for loads at once: what they bring is locked until its request opens.
            need = sum(s.end - s.start for s in segments) // self.page_size
            if self.tiers.loading_pages + need > self.total_pages // 2:
                return True
        request.load_tried = True
        return (
            bool(segments)
            and self.tiers.load(request, segments, self._take_slots)
            and request.load is not None  # a mover may have been done at once
        )

    def let_go(self, request: Request) -> None:
        """Unlock what was loaded for a request that has not opened: it stays, but may be evicted."""
        held, request.held = request.held, None
        if held is not None:
            self._free(self.tree.unlock(held))

    def give_up(self, request: Request) -> None:
        """`let_go` of what is in another request's way, or was flushed: it may be loaded again."""
        self.let_go(request)
        request.loaded = {}
        request.load_tried = False

    def flush(self) -> int:
        """Forget all prefixes; requests in flight keep theirs until they end. Tokens freed now."""
        freed = self.tree.flush()
        self._free(freed)
        self.pins.clear()
        if self.tiers is not None:
            self.tiers.flushed()
        return len(freed)

    # -- checking

    def check(self, running: Iterable[Request] = (), *, deep: bool = False) -> None:
        """Raise `TreeError` unless every page has exactly one owner. `deep` walks the tree too."""
        page = self.page_size
        free, evictable = self.pages.free_pages, self.tree.evictable_tokens // page
        locked = self.tree.locked_tokens // page
        loading = self.tiers.loading_pages if self.tiers is not None else 0
        found = free + evictable + locked + self.private_pages + loading
        terms = (
            f"free {free} + evictable {evictable} + locked {locked} + private {self.private_pages}"
            f" + loading {loading} = {found}, total {self.total_pages}"
        )
        if found != self.total_pages:
            raise TreeError(f"pages are not conserved: {terms}")
        if self.tiers is not None:
            self.tiers.check()
        held = list(running)
        private = sum((r.allocated - r.tree_owned) // page for r in held)
        if private != self.private_pages:
            raise TreeError(f"requests hold {private} private pages; {terms}")
        for r in held:
            marks = (0, r.tree_owned, r.committed, r.scheduled, r.allocated)
            if list(marks) != sorted(marks):
                raise TreeError(f"{r.id}: {' <= '.join(map(str, marks))} is false")
        if not deep:
            return
        self.tree.check()
        owned = [n.slots[::page] // page for n in self.tree.nodes() if n.slots is not None]
        owned += [r.slots[r.tree_owned : r.allocated : page] // page for r in held]
        if self.tiers is not None:
            loads = [t for t in self.tiers.transfers.values() if t.kind == "load"]
            owned += [t.device[::page] // page for t in loads]
        pages = np.concatenate(owned) if owned else np.empty(0, dtype=np.int32)
        if len(np.unique(pages)) != len(pages):
            raise TreeError(f"a page has two owners; {terms}")
        if len(pages) and self.pages.is_free(pages.astype(np.int32)).any():
            raise TreeError(f"an owned page is on the free list; {terms}")

    # -- inside

    def _may_publish(self, request: Request) -> bool:
        return self.enabled and request.generation == self.tree.generation

    def _take(self, missing: int, after: int | None = None) -> IntArray | None:
        """Free pages, evicting if need be; None, and nothing evicted, when there are not enough."""
        if missing > self.available_pages:
            return None
        if missing > self.pages.free_pages:
            # A thirty-second of the pool at a time: whole old sequences go, and free slots come in
            # long runs. Exactly what is missing, and a full pool would end up in pieces.
            least = max(missing - self.pages.free_pages, self.total_pages // 32)
            sliver = min(256, self.total_pages * self.page_size // 64)
            self.pins.expire()
            self._free(self.tree.evict(least * self.page_size, sliver))
        pages = self.pages.alloc(missing, after)
        if pages is None:
            raise TreeError(
                f"{missing} pages promised, {self.pages.free_pages} free after eviction"
            )
        return pages

    def _take_slots(self, tokens: int) -> IntArray | None:
        pages = self._take(tokens // self.page_size)
        return None if pages is None else self._slots(pages)

    def _slots(self, pages: IntArray) -> IntArray:
        if self.page_size == 1:
            return pages
        grid = pages[:, None] * np.int32(self.page_size) + self._offsets
        return grid.reshape(-1).astype(np.int32)

    def _free(self, slots: IntArray) -> None:
        if len(slots):
            self.pages.free(slots[:: self.page_size] // np.int32(self.page_size))
