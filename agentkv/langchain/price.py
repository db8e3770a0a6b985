"""What a call costs, for those who pay by the token or compare with those who do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentkv.report.report import CacheReport

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """Prices for a million tokens, in one currency of yours.

    `cached` is the price of prompt tokens that were read from the cache, `written` of those that
    the call added to it; None: as other prompt tokens.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "written"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a price of at least 0, got {value!r}.")

    def cost(self, report: CacheReport) -> dict[str, Any]:
        """The cost of a call, under the keys that LangSmith knows. Cached tokens count once."""
        read = report.cached_tokens
        written = report.created_tokens if self.written is not None else 0
        parts = {
            "cache_read": read * (self.input if self.cached is None else self.cached),
            "cache_creation": written * (self.written or 0.0),
            "text": (report.prompt_tokens - read - written) * self.input,
        }
        given = sum(parts.values()) / _MILLION
        answer = report.completion_tokens * self.output / _MILLION
        return {
            "input_cost": given,
            "output_cost": answer,
            "total_cost": given + answer,
            "input_cost_details": {key: value / _MILLION for key, value in parts.items()},
        }
