"""Touched: memory of a pool, asked of the kernel before it is needed.

A large array is backed by nothing until it is written to. The first write to each huge page then waits
for 2 MiB to be cleared, and in a virtual machine for its host to find them: a third of a millisecond on
a good day, five on a bad one. A pool has two such arrays a layer, so bringing down one short sequence to
memory that is new touches some 60 of them, while everybody waits for the next step.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

from agentkv.engine.kv.pool import KVPool

AHEAD_BYTES = 256 << 20
"""So much beyond what is in use is asked for."""

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14 and newer: as if written to, and unchanged


class Touched:
    """How far into a pool, from slot 0 on, memory is there. Not thread-safe."""

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self.slots = 0
        self._ahead = min(AHEAD_BYTES // pool.token_bytes, pool.slots // 4)
        self._able = sys.platform == "linux" and pool.device.type == "cpu"

    def short(self, used: int) -> bool:
        """Whether `reach` has something to do once the first `used` slots are in use."""
        return self._able and self.slots < self.pool.slots and used + self._ahead // 2 > self.slots

    def reach(self, used: int) -> None:
        """Ask for the memory of the first `used` slots and some more. Takes its time; others may read
        and write the pool meanwhile. Where the kernel knows no such thing, nothing is done."""
        if not self.short(used):
            return
        end = min(self.pool.slots, used + self._ahead)
        for layer in range(self.pool.layers):
            for side in self.pool.layer(layer):
                part = side[self.slots : end]
                size = part.numel() * part.element_size()
                if not _populate(part.data_ptr(), size):
                    self._able = False
                    return
        self.slots = end


def _populate(address: int, size: int) -> bool:
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if first >= last:
        return True
    advise = ctypes.CDLL(None, use_errno=True).madvise
    where, count = ctypes.c_void_p(first), ctypes.c_size_t(last - first)
    return int(advise(where, count, _POPULATE_WRITE)) == 0
