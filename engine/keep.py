"""Keeper: what callers know about the future of a prefix, and the cache cannot.

    pin       this prefix will be wanted           leaves last until its time is over
    pause     this session runs a tool             leaves last for a while, or until its next call
    release   this session, or branch, is over     what only it used leaves first
    prefetch  this session is about to resume      is brought back from lower tiers now

All are hints: the cache stays right without them, none can hold memory against a running request,
and one that comes too late, twice, or for a session that nobody knows, does nothing. The engine's
worker is the only user.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.backed import BackedTree
from agentkv.engine.kv.pins import MOST_SECONDS, Pin
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.kv.view import Allowed
from agentkv.engine.sched.request import Request
from agentkv.engine.sched.scheduler import Scheduler
from agentkv.engine.types import IntArray, Span

SESSIONS = 4096
SESSION_TOKENS = 8 << 20
"""How many sessions are remembered, and how many token ids in all (4 bytes each)."""

MOST_PREFETCHES = 8
"""At the same time; a hint beyond that does nothing."""

LASTING = ("tools", "instructions", "examples", "documents", "memory")
"""Kinds of segments that a pinned call keeps, as long as nothing else stands before them."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """One pin, or one pause (`id` is empty then). `seconds`: until it ends."""

    id: str
    tokens: int
    seconds: float


class Keeper:
    """Knows where each session's prefix ends. `scheduler`: of the engine's present cache."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[Namespace, str], IntArray] = OrderedDict()
        self._tokens = 0
        self._numbers = itertools.count()
        self.hints = dict.fromkeys(("pause", "release", "prefetch"), 0)
        self.refused_pins = 0

    # -- what calls tell

    def began(self, scheduler: Scheduler, namespace: Namespace, session: str | None) -> None:
        """A call of a session was admitted: its pause is over."""
        if session is not None:
            scheduler.cache.pins.drop("pauses", _name(namespace, session))

    def ended(self, namespace: Namespace, session: str | None, ids: IntArray) -> None:
        """A call has computed the prefix `ids`: its session goes on from there."""
        if session is None or len(ids) == 0:
            return
        key = (namespace, session)
        self._tokens += len(ids) - len(self._ends.pop(key, ids[:0]))
        self._ends[key] = ids
        while len(self._ends) > SESSIONS or self._tokens > SESSION_TOKENS:
            self._tokens -= len(self._ends.popitem(last=False)[1])

    # -- pins

    def pin(self, scheduler: Scheduler, namespace: Namespace, ids: IntArray, ttl: float) -> Pinned:
        """Raises `InvalidRequest` when nothing of it is in memory, or it is over the budget."""
        pins = scheduler.cache.pins
        return _shown(pins.add("pins", namespace, ids, ttl), pins.left)

    def try_pin(
        self, scheduler: Scheduler, namespace: Namespace, ids: IntArray, ttl: float
    ) -> None:
        """`pin` for a call that asked for it: one that cannot be had must not fail the call."""
        try:
            self.pin(scheduler, namespace, ids, ttl)
        except InvalidRequest:
            self.refused_pins += 1

    def unpin(self, scheduler: Scheduler, pin_id: str, allowed: Allowed) -> bool:
        """A pin of a namespace that is not allowed is not found."""
        pins = scheduler.cache.pins
        pin = pins.find("pins", pin_id)
        return pin is not None and allowed(pin.namespace) and pins.drop("pins", pin_id)

    def pins(self, scheduler: Scheduler, allowed: Allowed) -> list[Pinned]:
        pins = scheduler.cache.pins
        return [_shown(p, pins.left) for p in pins.all("pins") if allowed(p.namespace)]

    # -- hints

    def pause(self, scheduler: Scheduler, namespace: Namespace, session: str, ttl: float) -> int:
        """Tokens that are kept."""
        self.hints["pause"] += 1
        ids = self._ends.get((namespace, session))
        if ids is None:
            return 0
        try:
            pins = scheduler.cache.pins
            pin = pins.add("pauses", namespace, ids, ttl, name=_name(namespace, session))
        except InvalidRequest:
            return 0
        return pin.tokens

    def release(self, scheduler: Scheduler, namespace: Namespace, session: str) -> int:
        """Tokens that leave first from now on."""
        self.hints["release"] += 1
        cache = scheduler.cache
        cache.pins.drop("pauses", _name(namespace, session))
        ids = self._ends.pop((namespace, session), None)
        if ids is None:
            return 0
        self._tokens -= len(ids)
        match = cache.tree.match(namespace, ids)
        if match.length == 0 or match.offset < len(match.node.ids):
            return 0  # it went on elsewhere, or its end is gone
        return cache.tree.demote(match.node)

    def prefetch(self, scheduler: Scheduler, namespace: Namespace, session: str) -> int:
        """Tokens that lower tiers have, and that are on their way unless computing is faster."""
        self.hints["prefetch"] += 1
        cache = scheduler.cache
        ids = self._ends.get((namespace, session))
        waiting = sum(r.prefetch for r in scheduler.waiting)
        if ids is None or cache.tiers is None or waiting >= MOST_PREFETCHES:
            return 0
        cache.tiers.seen(namespace, ids)
        tree = cache.tree
        assert isinstance(tree, BackedTree)
        found = sum(s.end - s.start for s in tree.backed(namespace, ids, len(ids)))
        if found:
            scheduler.submit(
                Request(
                    f"prefetch-{next(self._numbers)}",
                    ids,
                    max_new=0,
                    namespace=namespace,
                    prefetch=True,
                )
            )
        return found


def lasting(spans: Sequence[Span]) -> int:
    """Where the part of a prompt ends that a pin of its call keeps."""
    end = 0
    for span in spans:
        if span.kind in LASTING:
            end = span.end
        elif span.kind != "template":
            break
    return end


def seconds_of(ttl: float, param: str = "ttl") -> float:
    """Checked: above 0, a day at most. Raises `InvalidRequest`."""
    if not 0 < ttl <= MOST_SECONDS:
        raise InvalidRequest(
            f"{param} must be above 0 and at most {MOST_SECONDS:.0f} seconds, got {ttl}.",
            param=param,
        )
    return float(ttl)


def _shown(pin: Pin, left: Callable[[Pin], float]) -> Pinned:
    return Pinned(pin.id, pin.tokens, left(pin))


def _name(namespace: Namespace, session: str) -> str:
    text = repr((namespace, session)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
