"""A log in at most 120 stretches, whatever its length: for the report's pictures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agentkv.trace.report import Bucket

MOST = 120
BINS = 32


@dataclass(slots=True)
class _Stretch:
    start: int
    time: float | None
    end: int = 0
    prompt: int = 0
    cached: int = 0
    lost: int = 0
    measured: int = 0
    said: bool = False
    held: list[float] = field(default_factory=lambda: [0.0] * BINS)
    there: list[float] = field(default_factory=lambda: [0.0] * BINS)
    reasons: Counter[str] = field(default_factory=Counter)


class Timeline:
    """Stretches double in length when there are too many, bins in width when a prompt is longer."""

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []
        self._each = 1
        self._width = 64
        self._request = 0

    def add(
        self,
        *,
        tokens: int,
        cached: int,
        time: float | None,
        measured: int | None,
        reasons: dict[str, float],
    ) -> None:
        """One call, in the order of the log."""
        while tokens > self._width * BINS:
            self._widen()
        if not self._stretches or self._request - self._stretches[-1].start >= self._each:
            if len(self._stretches) == MOST:
                self._halve()
            if not self._stretches or self._request - self._stretches[-1].start >= self._each:
                self._stretches.append(_Stretch(self._request, time))
        now = self._stretches[-1]
        self._request += 1
        now.end = self._request
        now.prompt += tokens
        now.cached += cached
        for reason, lost in reasons.items():
            now.lost += round(lost)
            now.reasons[reason] += round(lost)
        if measured is not None:
            now.measured += measured
            now.said = True
        for index in range(BINS):
            low = index * self._width
            if low >= tokens:
                break
            now.there[index] += min(tokens, low + self._width) - low
            now.held[index] += max(0, min(cached, low + self._width) - low)

    def buckets(self) -> tuple[Bucket, ...]:
        return tuple(
            Bucket(
                start=s.start,
                end=s.end,
                time=s.time,
                prompt=s.prompt,
                cached=s.cached,
                lost=s.lost,
                measured=s.measured if s.said else None,
                heat=tuple(h / t if t else None for h, t in zip(s.held, s.there, strict=True)),
                reasons={k: v for k, v in s.reasons.items() if v},
            )
            for s in self._stretches
        )

    def _widen(self) -> None:
        self._width *= 2
        for s in self._stretches:
            for bins in (s.held, s.there):
                bins[:] = [bins[2 * i] + bins[2 * i + 1] for i in range(BINS // 2)] + [0.0] * (
                    BINS // 2
                )

    def _halve(self) -> None:
        self._each *= 2
        merged: list[_Stretch] = []
        for s in self._stretches:
            if merged and s.start - merged[-1].start < self._each:
                into = merged[-1]
                into.end = s.end
                into.prompt += s.prompt
                into.cached += s.cached
                into.lost += s.lost
                into.measured += s.measured
                into.said |= s.said
                into.reasons += s.reasons
                into.held = [a + b for a, b in zip(into.held, s.held, strict=True)]
                into.there = [a + b for a, b in zip(into.there, s.there, strict=True)]
            else:
                merged.append(s)
        self._stretches = merged
