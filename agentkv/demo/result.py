"""What a run gives back: one row a model call, and the totals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.report.parts import MissUse
from agentkv.report.report import CacheReport

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class CallRow:
    """One model call. `turn` counts the customer's messages from 1, `call` the model's. `tools`
    are the names of the tools that the model called, none where it answered."""

    conversation: str
    turn: int
    call: int
    report: CacheReport
    answer: str
    tools: tuple[str, ...] = ()

    @property
    def ttft_ms(self) -> float:
        return float(self.report.ms.get("ttft", 0.0))

    @property
    def miss(self) -> MissUse | None:
        return self.report.miss

    def to_json(self) -> dict[str, Any]:
        report = self.report
        return {
            "conversation": self.conversation,
            "turn": self.turn,
            "call": self.call,
            "prompt_tokens": report.prompt_tokens,
            "cached_tokens": report.cached_tokens,
            "computed_tokens": report.computed_tokens,
            "completion_tokens": report.completion_tokens,
            "ttft_ms": self.ttft_ms,
            "miss": None if report.miss is None else report.miss.to_dict(),
            "tools": list(self.tools),
            "answer": self.answer,
        }


@dataclass(slots=True)
class RunResult:
    """One layout's run: its calls in order, the calls that did not fit, seconds in all."""

    layout: str
    calls: list[CallRow] = field(default_factory=list)
    refused: int = 0
    wall_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(row.report.prompt_tokens for row in self.calls)

    @property
    def cached_tokens(self) -> int:
        return sum(row.report.cached_tokens for row in self.calls)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def ttft_ms_median(self) -> float:
        return statistics.median(row.ttft_ms for row in self.calls) if self.calls else 0.0

    def lowest_hit(self) -> float | None:
        """The smallest share of a prompt that was cached, from each conversation's second call on."""
        later = [row.report for row in self.calls if row.call > 1]
        return min((r.cached_tokens / r.prompt_tokens for r in later), default=None)

    def totals(self) -> dict[str, Any]:
        return {
            "calls": len(self.calls),
            "refused": self.refused,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "computed_tokens": self.prompt_tokens - self.cached_tokens,
            "completion_tokens": sum(row.report.completion_tokens for row in self.calls),
            "tool_calls": sum(len(row.tools) for row in self.calls),
            "hit_rate": round(self.hit_rate, 4),
            "lowest_hit_after_first_call": self.lowest_hit(),
            "ttft_ms_median": self.ttft_ms_median,
            "wall_s": round(self.wall_s, 3),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "layout": self.layout,
            "calls": [row.to_json() for row in self.calls],
            "totals": self.totals(),
        }


def runs_json(runs: Sequence[RunResult], **extra: Any) -> dict[str, Any]:
    """The whole of `agentkv demo --json`."""
    return {"schema": SCHEMA, **extra, "runs": [run.to_json() for run in runs]}
