"""Replay of a log on cache models: rates, and how they fall with the size of the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.trace.caches.base import CacheModel, Hit, namespace_of
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.caches.radix import RadixCache
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered, Renderer
from agentkv.trace.threads import Threads


@dataclass(slots=True)
class Tally:
    """Sums over the calls of a replay, in tokens. `by_request` sums each call's own rate."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    known: int = 0
    by_request: float = 0.0

    def add(self, tokens: int, hit: Hit) -> None:
        self.requests += 1
        self.prompt += tokens
        self.cached += hit.cached
        self.known += hit.known
        self.by_request += hit.cached / tokens if tokens else 0.0

    @property
    def rate(self) -> float:
        """Token-weighted, 0 to 1."""
        return self.cached / self.prompt if self.prompt else 0.0

    @property
    def request_rate(self) -> float:
        """The mean over requests, 0 to 1."""
        return self.by_request / self.requests if self.requests else 0.0


class Replay:
    """Runs calls through one cache model, in the order in which they are given.

    A prompt is in the cache for the next call, as if each call had ended before the next one began.
    """

    def __init__(self, cache: CacheModel) -> None:
        self.cache = cache
        self.total = Tally()

    def call(self, call: Call, rendered: Rendered) -> Hit:
        """What the cache serves to a call. One that the provider refused fills nothing."""
        if call.error is not None:
            return Hit(0, 0)
        hit = self.cache.call(call, rendered, namespace_of(call))
        self.total.add(rendered.tokens, hit)
        return hit


@dataclass(frozen=True, slots=True)
class Point:
    """One row of a capacity curve. `share`: of the tokens that the log would fill; None: all."""

    policy: str
    share: float | None
    size: int | None
    rate: float
    request_rate: float
    evicted: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "share": self.share,
            "pool_tokens": self.size,
            "hit_rate": self.rate,
            "by_request": self.request_rate,
            "evicted_tokens": self.evicted,
        }


@dataclass(slots=True)
class Curve:
    """`distinct`: tokens that an unlimited cache would end up with."""

    points: list[Point] = field(default_factory=list)
    distinct: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    capped: bool = False

    @property
    def ceiling(self) -> float:
        """The rate of the unlimited cache."""
        return next((p.rate for p in self.points if p.share is None), 0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "distinct_tokens": self.distinct,
            "ceiling": self.ceiling,
            "capped": self.capped,
            "points": [p.to_dict() for p in self.points],
        }


def curve(
    calls: Callable[[], Iterable[Call]],
    renderer: Renderer,
    *,
    target: str = "agentkv",
    shares: Sequence[float] = (0.01, 0.05, 0.25),
    sizes: Sequence[int] = (),
    policies: Sequence[str] = ("lru", "hot"),
) -> Curve:
    """Hit rates by the size of the cache and the policy of eviction. `calls()` starts the log anew:
    it is read once for the unlimited cache, and once for all the others together.

    Raises ValueError for a target without a size.
    """
    out = Curve()
    free = cache_model(target)
    if not isinstance(free, RadixCache):
        raise ValueError(f"{target} has no size that could be varied.")
    whole = Replay(free)
    for call in calls():
        whole.call(call, renderer.render(call))
    out.requests, out.prompt_tokens = whole.total.requests, whole.total.prompt
    out.distinct, out.capped = free.held, free.capped
    wanted: list[tuple[float | None, int]] = [
        (share, max(1, int(share * out.distinct))) for share in shares
    ]
    wanted += [(None, size) for size in sizes]
    runs = [
        (policy, share, size, Replay(cache_model(target, size=size, policy=policy)))
        for policy in policies
        for share, size in wanted
    ]
    if runs:
        for call in calls():
            rendered = renderer.render(call)
            for _, _, _, run in runs:
                run.call(call, rendered)
    out.points.append(
        Point("any", None, None, whole.total.rate, whole.total.request_rate, free.evicted)
    )
    for policy, share, size, run in runs:
        assert isinstance(run.cache, RadixCache)
        out.points.append(
            Point(
                policy,
                share if share is not None else size / max(1, out.distinct),
                size,
                run.total.rate,
                run.total.request_rate,
                run.cache.evicted,
            )
        )
    return out


@dataclass(slots=True)
class Split:
    """Rates within and across conversations. `across`: what a call was served beyond what its own
    conversation had put there."""

    total: Tally = field(default_factory=Tally)
    within: int = 0

    @property
    def within_rate(self) -> float:
        return self.within / self.total.prompt if self.total.prompt else 0.0

    @property
    def across_rate(self) -> float:
        return self.total.rate - self.within_rate


def split(calls: Iterable[Call], renderer: Renderer, cache: CacheModel | None = None) -> Split:
    """Replay once with everything shared, and once with each conversation on its own."""
    out = Split()
    threads = Threads()
    shared = cache or cache_model("agentkv")
    alone = cache_model("agentkv")
    for call in calls:
        if call.error is not None:
            continue
        rendered = renderer.render(call)
        place = threads.place(call)
        hit = shared.call(call, rendered, namespace_of(call))
        own = alone.call(call, rendered, (*namespace_of(call), ("session", place.session)))
        out.total.add(rendered.tokens, hit)
        out.within += min(hit.cached, own.cached)
    return out
