"""Costs: whether bringing K/V back is faster than computing it again, by what was measured.

    load    = sum over tiers of (fixed + bytes / bandwidth)
    compute = tokens / prefill rate

Each figure is an exponential moving average of what this process saw, from a first measurement at
start. Loading what a slow disk holds can lose to computing it; then it is not loaded, and the
report says by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WEIGHT = 0.25
"""Of a new measurement."""


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
class Link:
    """One tier's way to the device: bytes a second, and seconds before the first byte."""

    bandwidth: float
    fixed: float = 0.0

    def seconds(self, size: float) -> float:
        return self.fixed + size / self.bandwidth


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
        self.prefill_rate = prefill_rate
        """Tokens a second."""
        self.always = always

    def estimate(self, tokens: Mapping[str, int]) -> Estimate:
        """Expected seconds to load these tokens (by tier), and to compute them."""
        load = sum(
            self.links[tier].seconds(count * self.token_bytes[tier])
            for tier, count in tokens.items()
            if count
        )
        total = sum(tokens.values())
        return Estimate(total, load, total / self.prefill_rate, self.always)

    def moved(self, tier: str, tokens: int, seconds: float) -> None:
        """Book a load that took `seconds`. Small ones teach the fixed part, large ones the rate."""
        link, size = self.links[tier], tokens * self.token_bytes[tier]
        if tokens <= 0 or seconds <= 0:
            return
        expected = link.seconds(size)
        if size / link.bandwidth >= link.fixed:
            seen = size / max(seconds - link.fixed, seconds * 0.05)
            link.bandwidth = 1 / ((1 - WEIGHT) / link.bandwidth + WEIGHT / seen)
        else:
            link.fixed += WEIGHT * (seconds - expected)
            link.fixed = max(0.0, link.fixed)

    def computed(self, tokens: int, seconds: float) -> None:
        """Book a step that prefilled `tokens` tokens and nothing else."""
        if tokens > 0 and seconds > 0:
            rate = tokens / seconds
            self.prefill_rate = 1 / ((1 - WEIGHT) / self.prefill_rate + WEIGHT / rate)
