"""A small cache that forgets what was used longest ago, bounded by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteLru(Generic[V]):
    """Values with a size each; the sum stays at or below `limit`. Thread-safe.

    A value that alone is larger than the limit is not kept at all.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()
        self._items: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._items.get(key)
            if found is None:
                return None
            self._items.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        with self._lock:
            old = self._items.pop(key, None)
            if old is not None:
                self.used -= old[1]
            if size > self.limit:
                return
            self._items[key] = (value, size)
            self.used += size
            while self.used > self.limit:
                _, (_, freed) = self._items.popitem(last=False)
                self.used -= freed

    def __len__(self) -> int:
        return len(self._items)
