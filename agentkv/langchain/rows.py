"""What a handler books for one model call, and sums of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from agentkv.report.report import CacheReport

Kind = Literal["call", "response_cache", "cancelled", "error"]

HEALTHY = ("first_call", "appended", "sub_page_tail")
"""Reasons that tell of no loss: there was nothing to reuse, or all of it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One model call. `kind` is `call` (an engine worked), `response_cache` (LangChain answered
    from its own cache: no engine worked, so nothing of it counts), `cancelled` (its stream was left
    or its task cancelled before the end, so it has no counts) or `error`.

    `root` is the run at the top of the tree, `step` LangGraph's, `namespace` the path of subagents
    ("" outside of them). `report` is None where nothing was said about tokens.
    """

    run_id: UUID
    parent: UUID | None
    root: UUID
    kind: Kind
    model: str
    node: str = ""
    step: int | None = None
    namespace: str = ""
    thread: str = ""
    tags: tuple[str, ...] = ()
    ms: float = 0.0
    report: CacheReport | None = None
    error: str | None = None

    @property
    def counted(self) -> bool:
        """Whether it is a call whose reuse is known."""
        return self.kind == "call" and self.report is not None and self.report.cached_known

    def to_dict(self) -> dict[str, Any]:
        return {
            "run_id": str(self.run_id),
            "parent_run_id": str(self.parent) if self.parent else None,
            "root_run_id": str(self.root),
            "kind": self.kind,
            "model": self.model,
            "node": self.node,
            "step": self.step,
            "namespace": self.namespace,
            "thread": self.thread,
            "tags": list(self.tags),
            "ms": round(self.ms, 3),
            "report": self.report.to_dict() if self.report else None,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over calls. Token sums and rates are of the calls whose reuse is known; `unknown` says
    how many are not among them."""

    calls: int = 0
    unknown: int = 0
    response_cache: int = 0
    cancelled: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    saved_prefill_ms: float = 0.0

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were reused. NaN where nothing is known, which is neither
        above nor below any number: no evidence passes no test."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else float("nan")

    def plus(self, row: CallRow) -> Totals:
        report = row.report
        known = row.counted and report is not None
        return Totals(
            calls=self.calls + (row.kind == "call"),
            unknown=self.unknown + (row.kind == "call" and not known),
            response_cache=self.response_cache + (row.kind == "response_cache"),
            cancelled=self.cancelled + (row.kind == "cancelled"),
            errors=self.errors + (row.kind == "error"),
            prompt_tokens=self.prompt_tokens + (report.prompt_tokens if known and report else 0),
            cached_tokens=self.cached_tokens + (report.cached_tokens if known and report else 0),
            completion_tokens=self.completion_tokens
            + (report.completion_tokens if row.kind == "call" and report else 0),
            saved_prefill_ms=self.saved_prefill_ms
            + (report.saved_prefill_ms if known and report else 0.0),
        )

    @classmethod
    def of(cls, rows: Iterable[CallRow]) -> Totals:
        total = cls()
        for row in rows:
            total = total.plus(row)
        return total

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "unknown": self.unknown,
            "response_cache": self.response_cache,
            "cancelled": self.cancelled,
            "errors": self.errors,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "computed_tokens": self.computed_tokens,
            "completion_tokens": self.completion_tokens,
            "hit_rate": round(self.hit_rate, 4) if self.prompt_tokens else None,
            "saved_prefill_ms": round(self.saved_prefill_ms, 3),
        }
