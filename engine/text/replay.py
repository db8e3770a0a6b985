"""Token ids that need not be computed again: of known text, and of text that the model wrote.

A rendered prompt is a chain of control tokens and of *stretches*, the text between them. Control
tokens are hard borders for a tokenizer, so

- a stretch that was encoded once has the same ids in every prompt (`StretchCache` by its text);
- a stretch that the model itself completed must be fed back as the very ids that were sampled,
  since "h" + "el" + "lo" decodes to "hello" and "hello" encodes to one token. It is looked up by
  everything before it (a digest of text and control tokens, which differ) and by its own text.

Only the choice of ids for a text hangs on the digest; the text itself is always compared. So a
replayed prompt decodes to what was rendered, whatever happens.

The cost of a turn is therefore its own new text. Hashing and joining the rest is a copy of memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from agentkv.engine.types import IntArray


class Stretch(NamedTuple):
    """Ids of a text between two control tokens, and the character where each one starts.

    Both arrays are int32 `[n]`.
    """

    ids: IntArray
    starts: IntArray


class Anchor(NamedTuple):
    """The open end of a prompt: what the model writes continues this stretch.

    `digest` stands for everything before it; it starts at character `char` and token `token`.
    """

    digest: bytes
    char: int
    token: int


class Trail:
    """A running digest over the control tokens and stretches of a prompt."""

    __slots__ = ("_hash",)

    def __init__(self, namespace: str = "") -> None:
        self._hash = hashlib.blake2b(digest_size=32)
        self._add(b"N", namespace)

    def control(self, text: str) -> None:
        """Go past a control token."""
        self._add(b"C", text)

    def stretch(self, text: str) -> None:
        """Go past a stretch of text."""
        self._add(b"T", text)

    def digest(self) -> bytes:
        """32 bytes for the way so far."""
        return self._hash.digest()

    def _add(self, tag: bytes, text: str) -> None:
        raw = text.encode("utf-8")
        self._hash.update(tag + len(raw).to_bytes(8, "little"))
        self._hash.update(raw)


class StretchCache:
    """Stretches by key; the least recently used go first. Safe to use from many threads.

    Bounded by `entries` and by `nbytes` (token arrays and key text together).
    """

    def __init__(self, *, entries: int, nbytes: int) -> None:
        self._entries = entries
        self._limit = nbytes
        self._lock = threading.Lock()
        self._items: OrderedDict[Hashable, tuple[Stretch, int]] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Hashable) -> Stretch | None:
        """The stretch under `key`, which becomes the most recently used one."""
        with self._lock:
            found = self._items.get(key)
            if found is None:
                return None
            self._items.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, stretch: Stretch, *, key_bytes: int) -> None:
        """Keep `stretch`; a later one under the same key takes its place."""
        stretch.ids.flags.writeable = False
        stretch.starts.flags.writeable = False
        size = stretch.ids.nbytes + stretch.starts.nbytes + key_bytes + 256
        with self._lock:
            old = self._items.pop(key, None)
            if old is not None:
                self.nbytes -= old[1]
            if size > self._limit:
                return
            self._items[key] = (stretch, size)
            self.nbytes += size
            while len(self._items) > self._entries or self.nbytes > self._limit:
                _, (_, freed) = self._items.popitem(last=False)
                self.nbytes -= freed

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._items.clear()
            self.nbytes = 0
