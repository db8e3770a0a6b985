"""Store: where K/V is kept that outlives the process, as the mover and the lower tiers see it.

A *group* is the K/V of tokens `[start, start + n)` of one prefix, in whole pages, with its token
ids beside it. `DiskStore` keeps a group in a file, `RedisStore` in a value of a server.

Slots of this tier are numbers in this process only: group `g` has `[g.base, g.base + n)`.

What every store promises:

- Nothing is believed: on reading, a group's header must name this very model, dtype, layout, page
  size and namespace, the ids must be the ones asked for, and each page's BLAKE3 must fit. Anything
  else is a `StoreMiss`; a damaged group is removed, and counted.
- A group is complete or does not exist.
- A salt is in it as a digest only. Token ids are in it: whoever can read it can read the prompts.

Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from blake3 import blake3

from agentkv.engine.kv.page_file import Head
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import IntArray

Later = Callable[[Callable[[], None]], None]
"""Runs some work soon, on a thread that may wait for disk or network."""


class StoreMiss(Exception):
    """A group cannot be used; the message says why. `bad`: it was damaged, not merely gone."""

    def __init__(self, why: str, *, bad: bool = True) -> None:
        super().__init__(why)
        self.bad = bad


@dataclass(frozen=True, slots=True)
class Layout:
    """What a page's bytes mean. Two stores share a group only if all of it is equal.

    `page_bytes`: of one page over all layers, K and V.
    """

    model: str
    """Fingerprint of weights and configuration. Ids are compared, so the tokenizer does not matter."""
    dtype: str
    page_size: int
    layers: int
    kv_heads: int
    head_dim: int
    page_bytes: int
    scales: str = ""
    """Digest of what numbers of fewer bits are multiplied with; empty where they stand for
    themselves."""

    def facts(self, tag: str, start: int, tokens: int) -> dict[str, Any]:
        """The header of a group of this layout."""
        shape = asdict(self)
        if not self.scales:
            del shape["scales"]
        return {**shape, "namespace": tag, "start": start, "tokens": tokens}

    @property
    def key(self) -> str:
        """A digest of all of it, 32 hex characters."""
        text = json.dumps(self.facts("", 0, 0), sort_keys=True)
        return blake3(text.encode()).hexdigest()[:32]


@dataclass(slots=True, eq=False)
class Group:
    """One group. `ids`: of its own tokens, int32 `[n]`; a path puts the whole prefix together.

    `parent`: the row of the group that holds the token before its first. Times in seconds since
    1970, `size` in bytes.
    """

    row: int
    tag: str
    parent: int | None
    start: int
    ids: IntArray
    name: str
    size: int
    created: float
    used: float
    hits: float
    base: int = 0
    live: int = 0
    """Tokens that the tree still refers to."""
    children: int = 0

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


@dataclass(frozen=True, slots=True)
class Found:
    """A group, or the first part of one, that belongs to a prefix: token ids up to its end, where
    it starts, and its slots from there on."""

    ids: IntArray
    start: int
    slots: IntArray


def tag_of(namespace: Namespace) -> str:
    """A namespace as 32 hex characters: digests only, since salts may be secrets.

    Tagged parts are written with their lengths, so `("ab", "c")` and `("a", "bc")` differ.
    """
    hasher = blake3()

    def feed(value: object) -> None:
        if isinstance(value, tuple):
            hasher.update(f"t{len(value)}:".encode())
            for part in value:
                feed(part)
            return
        text = repr(value).encode("utf-8", "surrogatepass")
        hasher.update(f"{type(value).__name__}{len(text)}:".encode() + text)

    feed(namespace)
    return hasher.hexdigest()[:32]


def expect(head: Head, layout: Layout, tag: str, group: Group) -> None:
    """Raise `ValueError` unless a header is the one that `group` must have."""
    if head.facts != layout.facts(tag, group.start, group.tokens):
        raise ValueError("the header names another model, dtype, layout or namespace")
    if not np.array_equal(head.ids, group.ids):
        raise ValueError("the token ids beside the pages are not the index's")


class Store(Protocol):
    """Groups of one `Layout`. `look`, `write`, `read` and what goes to `later` may wait for disk or
    network, and belong on the mover's thread; everything else answers from memory at once."""

    layout: Layout
    limit: int
    """Most bytes of all groups together."""
    later: Later
    """Runs what removing a group takes; at once, until somebody sets it."""
    group_bytes: int
    """Most bytes that one group should have."""
    shared: bool
    """Others write to it, too: `look` asks it what it has of a prefix."""

    @property
    def away(self) -> bool:
        """It cannot be reached, and will not be tried for a moment."""

    def look(self, namespace: Namespace, ids: IntArray) -> None:
        """Learn what it has of a prefix. Never raises for a store that cannot be reached."""

    def cover(self, namespace: Namespace, ids: IntArray) -> list[Found]:
        """What is known of a prefix, parents first, without a gap."""

    def groups(self, tag: str | None = None) -> list[Group]:
        """The known groups of a namespace (or all), parents before children."""

    def path(self, group: Group) -> IntArray:
        """Token ids of the whole prefix that ends with `group`."""

    def write(
        self, namespace: Namespace, ids: IntArray, start: int, pages: Sequence[memoryview]
    ) -> IntArray:
        """Store tokens `[start, len(ids))` of a prefix, `page_bytes` a page; returns their slots.

        What is there already is not written again. Raises `OSError`, and leaves nothing behind, or
        `StoreMiss` when what comes before `start` is not in the store.
        """

    def read(self, namespace: Namespace, ids: IntArray, slots: IntArray) -> Iterator[memoryview]:
        """The pages of `slots` (whole pages), in order. `ids`: the tokens they must stand for.

        Raises `StoreMiss` when any of it cannot be used; a damaged group is removed then.
        """

    def free(self, slots: IntArray) -> None:
        """The tree no longer refers to these slots."""

    def all_alive(self) -> None:
        """The tree has forgotten everything, and may ask for every group again."""

    def victims(self) -> list[Group]:
        """Groups that should go, by age and by size: leaves first, least useful first."""

    def remove(self, group: Group, why: str | None = None, *, bad: bool | None = None) -> None:
        """Take a group out, and what can only be reached through it. `why`: it was of no use, and
        is counted as damaged, unless `bad` says otherwise."""

    def probe(self) -> tuple[float, float]:
        """Bytes a second, and seconds before the first byte, by a first small measurement."""

    def counters(self) -> dict[str, float]:
        """Sizes and totals for the report of tiers."""

    def close(self) -> None:
        """Let go of it. Twice does nothing."""
