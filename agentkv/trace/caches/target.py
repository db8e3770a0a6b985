"""Cache targets: what an engine or a provider reuses, and from how many tokens on.

The numbers live in `targets.toml` with the date on which they were read, since providers
change them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One row of the data file. `granularity`: tokens of a reuse unit. `minimum`: fewest tokens
    that are cached at all, by a part of the model's name ("" for the rest). `explicit`: nothing
    is reused without a marker. `read_price` is relative to an uncached token. `waits_for_twins`:
    of two equal prefixes that arrive together, one is computed. `exact_from`: models that match at
    breakpoints only."""

    name: str
    title: str
    as_of: str
    source: str
    granularity: int
    minimum: dict[str, int]
    explicit: bool
    max_markers: int
    lookback: int
    ttl_minutes: tuple[int, ...]
    read_price: float
    write_price: float
    order: tuple[str, ...]
    schema_in_prefix: bool
    parses_json: bool
    waits_for_twins: bool
    exact_from: tuple[str, ...]

    def least(self, model: str | None = None) -> int:
        """Fewest tokens that are cached, for a model or in general."""
        name = (model or "").lower().replace("@", "-")
        best = max((k for k in self.minimum if k in name), key=len, default="")
        return self.minimum.get(best, 0)

    def exact(self, model: str | None) -> bool:
        """Whether a model reuses a prefix only where a breakpoint ends it."""
        name = (model or "").lower()
        return any(k in name for k in self.exact_from)


@cache
def targets() -> dict[str, Target]:
    text = (files("agentkv.trace.caches") / "targets.toml").read_text(encoding="utf-8")
    return {name: _target(name, row) for name, row in tomllib.loads(text).items()}


def target(name: str) -> Target:
    """Raises ValueError naming the known ones."""
    known = targets()
    if name not in known:
        raise ValueError(f"unknown target {name!r}; known: {', '.join(known)}.")
    return known[name]


def _target(name: str, row: dict[str, Any]) -> Target:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Target(name=name, **values)
