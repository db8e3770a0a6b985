"""Costs: whether bringing K/V back is faster than computing it again, by what was measured.

    load    = sum over tiers of (parts x fixed + bytes / bandwidth)
    compute = tokens / prefill rate + slope x tokens x position

A part is what is copied or read at once: a run of slots, a file. Each pair of figures is a weighted
least-squares fit of what this process saw: a new measurement counts full, and an exponentially fading
part of that when newer ones come and as time goes by; the first measurement, at start, stays as a weak belief. So a
tier that has become slow is declined after a load or two, and one that was declined is believed again
after a while, or when a small sample says that it is fast.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WEIGHT = 0.75
"""Of a measurement, once there is a newer one."""

MEMORY = 120.0
"""Seconds after which a measurement counts half."""

BELIEF = 0.03
"""Weight of the first figures."""

REFIT = 10.0
"""Seconds after which figures are worked out anew though nothing was measured."""

LEAST_BYTES = 8 << 20
"""A process' first load is often a small and slow one. It says nothing of the bandwidth: by it, all that
an earlier process left would be declined."""

SURPRISE = 2.0
"""A measurement that is off by this factor: things have changed, and older ones count less."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds, as expected before a load was started or declined."""

    tokens: int
    load: float
    compute: float

    always: bool = False

    @property
    def worth(self) -> bool:
        return self.always or self.load < self.compute


@dataclass(slots=True)
class Fit:
    """`seconds = first * a + second * b`, neither below zero, learned from measurements (a, b,
    seconds). `least`: before so much of b was seen, what took long is put down to `first`."""

    first: float
    second: float
    least: float = 0.0
    start: tuple[float, float] = field(init=False)
    seen: deque[tuple[float, float, float, float, float]] = field(init=False)
    """Oldest first: a, b, seconds, when, weight beside that of its age."""
    fitted: float = field(init=False)

    def __post_init__(self) -> None:
        self.start = (self.first, self.second)
        self.seen = deque(maxlen=24)
        self.fitted = time.monotonic()

    def expect(self, a: float, b: float) -> float:
        if self.seen and time.monotonic() - self.fitted > REFIT:
            self._solve()
        return self.first * a + self.second * b

    def learn(self, a: float, b: float, seconds: float) -> None:
        if seconds <= 0 or (a <= 0 and b <= 0):
            return
        expected = self.expect(a, b)
        if not expected / SURPRISE <= seconds <= expected * SURPRISE:
            for _ in range(len(self.seen)):
                *what, weight = self.seen.popleft()
                self.seen.append((what[0], what[1], what[2], what[3], weight * 0.25))
        self.seen.append((a, b, seconds, time.monotonic(), 1.0))
        self._solve()

    def _solve(self) -> None:
        """Relative errors are what counts, so each equation is divided by what the last solution
        expects of it."""
        self.fitted = now = time.monotonic()
        if not self.seen:
            return
        took = sum(one[2] for one in self.seen)
        # What each figure would be if the other were nothing: a belief is no firmer than that.
        most = [took / max(sum(one[n] for one in self.seen), 1e-15) for n in (0, 1)]
        xx = xy = yy = xs = ys = 0.0
        weight = 1.0
        for a, b, seconds, when, own in reversed(self.seen):
            w = weight * own * 0.5 ** ((now - when) / MEMORY)
            weight *= WEIGHT
            w /= max(self.first * a + self.second * b, 1e-9) ** 2
            xx += w * a * a
            xy += w * a * b
            yy += w * b * b
            xs += w * a * seconds
            ys += w * b * seconds
        for index, (then, value) in enumerate(
            zip(self.start, (self.first, self.second), strict=True)
        ):
            scale = max(then, value, most[index], 1e-15)
            if index == 1 and sum(one[1] for one in self.seen) < self.least:
                scale = max(then, value, 1e-15)
            if index == 0:
                xx += BELIEF / scale**2
                xs += BELIEF * then / scale**2
            else:
                yy += BELIEF / scale**2
                ys += BELIEF * then / scale**2
        det = xx * yy - xy * xy
        if det > 1e-12 * xx * yy:
            first, second = (xs * yy - ys * xy) / det, (ys * xx - xs * xy) / det
        else:
            first, second = 0.0, ys / yy
        if first < 0:
            first, second = 0.0, ys / yy
        if second < 0:
            first, second = xs / xx, 0.0
        self.first, self.second = first, second


class Link:
    """One tier's way to the device: `bandwidth` bytes a second, and `fixed` seconds a part."""

    def __init__(self, bandwidth: float, fixed: float = 0.0) -> None:
        self.fit = Fit(fixed, 1 / bandwidth, least=LEAST_BYTES)
        self.measured = float("-inf")
        """When something was last learned, by the monotonic clock."""

    @property
    def bandwidth(self) -> float:
        return 1 / max(self.fit.second, 1e-15)

    @bandwidth.setter
    def bandwidth(self, value: float) -> None:
        self.fit.second = 1 / value

    @property
    def fixed(self) -> float:
        return self.fit.first

    def seconds(self, size: float, parts: int = 1) -> float:
        return self.fit.expect(parts, size)

    def learn(self, size: float, parts: int, seconds: float) -> None:
        self.fit.learn(parts, size, seconds)
        self.measured = time.monotonic()


class Costs:
    """Bandwidths by tier and the prefill rate. Not thread-safe.

    `token_bytes`: bytes of K and V of one token, by tier (a tier may keep a smaller dtype).
    `always`: every load is worth it, whatever it costs.
    """

    def __init__(
        self,
        token_bytes: Mapping[str, int],
        links: Mapping[str, Link],
        prefill_rate: float,
        *,
        always: bool = False,
    ) -> None:
        self.token_bytes = dict(token_bytes)
        self.links = dict(links)
        self.prefill = Fit(1 / prefill_rate, 0.0)
        """Seconds a token, and a token and position before it."""
        self.always = always

    @property
    def prefill_rate(self) -> float:
        """Tokens a second at the beginning of a prompt."""
        return 1 / max(self.prefill.first, 1e-15)

    def estimate(
        self,
        tokens: Mapping[str, int],
        *,
        parts: Mapping[str, int] | None = None,
        start: int = 0,
    ) -> Estimate:
        """Expected seconds to load these tokens (by tier, each in so many parts), and to compute
        them, from position `start` on."""
        load = sum(
            self.links[tier].seconds(
                count * self.token_bytes[tier], 1 if parts is None else parts[tier]
            )
            for tier, count in tokens.items()
            if count
        )
        total = sum(tokens.values())
        compute = self.prefill.expect(total, total * (start + total / 2))
        return Estimate(total, load, compute, self.always)

    def moved(self, tier: str, tokens: int, seconds: float, *, parts: int = 1) -> None:
        """Book a load that took `seconds`."""
        if tokens > 0:
            self.links[tier].learn(tokens * self.token_bytes[tier], parts, seconds)

    def computed(self, tokens: int, seconds: float, *, before: float = 0.0) -> None:
        """Book a step that prefilled `tokens` tokens; `before`: the sum of their positions."""
        if tokens > 0:
            self.prefill.learn(tokens, before, seconds)
