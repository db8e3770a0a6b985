"""Pins and pauses: prefixes that leave last, for a while.

A *pin* is asked for by whoever knows that a prefix will be wanted (a system prompt with its tools). A
*pause* says that a session is away, running a tool or waiting for a person, and will resume. What
must always hold:

- Neither holds memory by force. A kept prefix outlives everything that is not kept, and gives way
  to running requests that would not fit otherwise: no pin can wedge the engine.
- All pins together keep at most a budget of distinct tokens, and so do all pauses. Where a new one
  goes over it, the oldest decay: they become ordinary prefixes.
- Each ends at its time, unless it is made again. A flush ends all.

The id of a pin is a digest of what it keeps, so pinning the same prefix again prolongs it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.tree import Keep, Namespace, Node, RadixTree
from agentkv.engine.types import IntArray

PIN_SECONDS = 3600.0
PAUSE_SECONDS = 120.0
MOST_SECONDS = 24 * 3600.0
"""How long a pin, and a pause, last unless said otherwise; and at most."""


@dataclass(frozen=True, slots=True)
class Pin:
    """`tokens` of a prefix are kept until `until`, by the clock of the registry."""

    id: str
    kind: Keep
    namespace: Namespace
    tokens: int
    until: float
    node: Node


class Pins:
    """All pins and pauses of one tree. `budget`: distinct tokens that each kind may keep.

    Not thread-safe: the tree's thread owns it.
    """

    def __init__(
        self, tree: RadixTree, budget: Mapping[Keep, int], clock: Callable[[], float]
    ) -> None:
        self.budget = dict(budget)
        self.decayed: dict[Keep, int] = dict.fromkeys(budget, 0)
        """How many ended early since others needed their budget."""
        self._tree = tree
        self._clock = clock
        self._pins: dict[Keep, OrderedDict[str, Pin]] = {k: OrderedDict() for k in budget}

    def add(
        self,
        kind: Keep,
        namespace: Namespace,
        ids: IntArray,
        ttl: float,
        *,
        name: str | None = None,
    ) -> Pin:
        """Keep the part of the prefix `ids` that is in memory, for `ttl` seconds.

        `name`: instead of the digest; one of the same name is replaced. Raises `InvalidRequest`
        when nothing of it is in memory, or when it alone is larger than the budget.
        """
        self.expire()
        match = self._tree.match(namespace, ids)
        if match.length == 0:
            raise InvalidRequest(
                "Nothing of this prefix is in memory: compute it first.", param="prompt"
            )
        if match.length > self.budget[kind]:
            raise InvalidRequest(
                f"{match.length} tokens are more than all {kind} may keep ({self.budget[kind]}).",
                param="prompt",
            )
        pin_id = name or _digest(namespace, ids[: match.length])
        pins = self._pins[kind]
        old = pins.pop(pin_id, None)
        node = self._tree.keep(kind, namespace, match)
        if old is not None:
            self._tree.unkeep(kind, old.node)
        pin = Pin(pin_id, kind, namespace, match.length, self._clock() + ttl, node)
        while pins and self._tree.kept_tokens[kind] > self.budget[kind]:
            _, oldest = pins.popitem(last=False)
            self._tree.unkeep(kind, oldest.node)
            self.decayed[kind] += 1
        pins[pin_id] = pin
        return pin

    def drop(self, kind: Keep, pin_id: str) -> bool:
        """End one now. False if there is none of that id."""
        pin = self._pins[kind].pop(pin_id, None)
        if pin is None:
            return False
        self._tree.unkeep(kind, pin.node)
        return True

    def find(self, kind: Keep, pin_id: str) -> Pin | None:
        return self._pins[kind].get(pin_id)

    def expire(self) -> int:
        """End those whose time has come. Returns how many."""
        now = self._clock()
        over = [p for pins in self._pins.values() for p in pins.values() if p.until <= now]
        for pin in over:
            self.drop(pin.kind, pin.id)
        return len(over)

    def left(self, pin: Pin) -> float:
        """Seconds until it ends."""
        return max(0.0, pin.until - self._clock())

    def all(self, kind: Keep) -> tuple[Pin, ...]:
        """Oldest first."""
        self.expire()
        return tuple(self._pins[kind].values())

    def clear(self) -> None:
        """The tree was flushed: nothing is kept any more."""
        for pins in self._pins.values():
            pins.clear()


def _digest(namespace: Namespace, ids: IntArray) -> str:
    hasher = hashlib.blake2b(repr(namespace).encode("utf-8", "surrogatepass"), digest_size=10)
    hasher.update(b"\x00" + ids.astype("<i4").tobytes())
    return f"pin-{hasher.hexdigest()}"
