"""PageAllocator: which pages of the KV pool are free, and the longest runs among them.

What must always hold:
- a page is either free or handed out, and `free_pages` counts the free ones exactly;
- freeing a page that is free already, or that does not exist, raises `PageError` at once;
- pages come in contiguous runs wherever that can be had, because a sequence whose slots are one
  run is read through a view instead of being gathered (see `agentkv.engine.attention`).

A page is `page_size` token slots; page `i` is slots `[i * page_size, (i + 1) * page_size)`.
Only numpy here. Not thread-safe: the engine's worker is its only user.
"""

from __future__ import annotations

import heapq

import numpy as np

from agentkv.engine.types import IntArray


class PageError(AssertionError):
    """The page bookkeeping was violated: a double free, or a page that does not exist."""


class PageAllocator:
    """Free runs of pages: a map from start to length, one from end to start, and a lazy heap.

    All operations cost O(runs touched * log runs), never O(pages) in Python.
    """

    def __init__(self, total: int, *, roomy: bool = True) -> None:
        """`roomy`: sequences grow, and get room to. Otherwise pages are handed out from the bottom
        up, so that a pool that is never full never has all of its memory touched."""
        if total < 1:
            raise ValueError(f"a pool needs at least one page, got {total}")
        self.total = total
        self.roomy = roomy
        self.free_pages = 0
        self._is_free = np.zeros(total, dtype=np.bool_)
        self._length: dict[int, int] = {}
        self._start_by_end: dict[int, int] = {}
        self._longest: list[tuple[int, int]] = []
        self._release_run(0, total)

    def alloc(self, count: int, after: int | None = None) -> IntArray | None:
        """`count` pages as int32 `[count]` in ascending runs, or None when fewer are free.

        `after`: a page that the caller owns; pages that follow it directly are taken first, so
        that a growing sequence stays one run.
        """
        if count > self.free_pages:
            return None
        if count == 0:
            return np.empty(0, dtype=np.int32)
        runs: list[tuple[int, int]] = []
        left = count
        if after is not None and (after + 1) in self._length:
            taken = min(left, self._length[after + 1])
            runs.append(self._take(after + 1, after + 1, taken))
            left -= taken
        while left:
            start, length = self._longest_run()
            taken = min(left, length)
            # A new sequence starts in the middle of the longest gap, not at its edge: whoever ends
            # at that edge may still grow. Only when the gap is wide, or it would split the pool.
            wide = self.roomy and after is None and length >= 4 * taken
            at = start + (length - taken) // 2 if wide else start
            runs.append(self._take(start, at, taken))
            left -= taken
        self.free_pages -= count
        if len(runs) == 1:
            return np.arange(runs[0][0], runs[0][0] + count, dtype=np.int32)
        return np.concatenate([np.arange(s, s + n, dtype=np.int32) for s, n in runs])

    def free(self, pages: IntArray) -> None:
        """Give pages back. The one exit: every freed page of the engine comes through here."""
        if len(pages) == 0:
            return
        ordered = np.sort(pages)
        if ordered[0] < 0 or ordered[-1] >= self.total:
            raise PageError(f"page out of range: {ordered[0]}..{ordered[-1]} of {self.total}")
        if self._is_free[ordered].any() or (ordered[1:] == ordered[:-1]).any():
            raise PageError(f"double free among {len(pages)} pages from {ordered[0]} on")
        cuts = np.flatnonzero(np.diff(ordered) != 1) + 1
        for run in np.split(ordered, cuts):
            self._release_run(int(run[0]), len(run))

    def is_free(self, pages: IntArray) -> IntArray:
        """1 for each of `pages` that is free, 0 otherwise. For checks."""
        return self._is_free[pages].astype(np.int32)

    def runs(self) -> dict[int, int]:
        """Start and length of every free run. For checks."""
        return dict(self._length)

    def _longest_run(self) -> tuple[int, int]:
        while True:
            negative, start = self._longest[0]
            if self._length.get(start) == -negative:
                return start, -negative
            heapq.heappop(self._longest)

    def _take(self, start: int, at: int, count: int) -> tuple[int, int]:
        """Cut `[at, at + count)` out of the free run that begins at `start`."""
        length = self._length.pop(start)
        end = start + length
        del self._start_by_end[end]
        if at > start:
            self._put(start, at - start)
        if at + count < end:
            self._put(at + count, end - at - count)
        self._is_free[at : at + count] = False
        return at, count

    def _release_run(self, start: int, count: int) -> None:
        self._is_free[start : start + count] = True
        self.free_pages += count
        end = start + count
        if end in self._length:
            after = self._length.pop(end)
            del self._start_by_end[end + after]
            end += after
        if start in self._start_by_end:
            before = self._start_by_end.pop(start)
            del self._length[before]
            start = before
        self._put(start, end - start)

    def _put(self, start: int, length: int) -> None:
        self._length[start] = length
        self._start_by_end[start + length] = start
        heapq.heappush(self._longest, (-length, start))
        if len(self._longest) > 64 + 4 * len(self._length):
            self._longest = [(-n, s) for s, n in self._length.items()]
            heapq.heapify(self._longest)
