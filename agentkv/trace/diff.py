"""`diff`: two logs, what got worse or better between them, in tokens.

Causes are matched by reason, rule and place, and weighed by their share of the prompt tokens, since
two days never have the same traffic. Beside them stands what changed in the prompts themselves (see
`layouts`): the blocks that were swapped, added or reworded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentkv.trace.layouts import Layout, LayoutChange, layout_changes
from agentkv.trace.report import CauseRow, TraceReport

WORSE = 0.01
"""Fall of the hit rate, or growth of a cause's share, from which the second log is called worse:
logs of the same software differ by less."""
GROWN = 0.005
"""Change of a cause's share of the prompt tokens from which it is called grown or shrunk; a tenth of
the share when that is more, since a longer log has fewer first calls in it."""

State = Literal["new", "gone", "grown", "shrunk", "same"]
_ORDER: tuple[State, ...] = ("new", "grown", "same", "shrunk", "gone")


@dataclass(frozen=True, slots=True)
class Changed:
    """One cause in both logs. `before`, `after`: tokens lost as a share of the prompt tokens of
    their log. `cause`: from the log that has it (the second if both)."""

    state: State
    cause: CauseRow
    before: float
    after: float
    tokens_before: int
    tokens_after: int

    @property
    def growth(self) -> float:
        return self.after - self.before

    def to_dict(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "lost_share_before": self.before,
            "lost_share_after": self.after,
            "tokens_lost_before": self.tokens_before,
            "tokens_lost_after": self.tokens_after,
            "cause": self.cause.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class LogDiff:
    """`layout`: what changed in the blocks that every call has. `by_kind`: a kind of part, and the
    mean tokens of a call in it, before and after. `tolerance`: as `WORSE`."""

    before: TraceReport
    after: TraceReport
    causes: tuple[Changed, ...]
    layout: tuple[LayoutChange, ...] = ()
    by_kind: tuple[tuple[str, float, float], ...] = ()
    tolerance: float = WORSE

    @property
    def fall(self) -> float:
        """Of the hit rate; negative when it rose, 0 when one of the logs has no calls."""
        if not self.before.requests or not self.after.requests:
            return 0.0
        return self.before.rates.now - self.after.rates.now

    @property
    def tokens(self) -> int:
        """Of the second log's prompts: computed only because its hit rate is not the first one's
        (negative: saved)."""
        return round(self.fall * self.after.prompt_tokens)

    @property
    def why(self) -> tuple[str, ...]:
        """Why the second log is worse, a sentence each; empty when it is not."""
        out = []
        if self.fall >= self.tolerance:
            rates = f"{self.before.rates.now:.1%} to {self.after.rates.now:.1%}"
            out.append(f"The hit rate fell from {rates}: {self.tokens:,} tokens more are computed.")
        for c in self.causes:
            if c.state in ("new", "grown") and c.growth >= self.tolerance:
                name = f"{c.cause.rule} {c.cause.name}" if c.cause.rule else c.cause.name
                more = round(c.growth * self.after.prompt_tokens)
                what = "is new and costs" if c.state == "new" else "grew by"
                out.append(f"{name} ({c.cause.segment}) {what} {more:,} tokens.")
        return tuple(out)

    @property
    def worse(self) -> bool:
        return bool(self.why)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "worse": self.worse,
            "why": list(self.why),
            "tolerance": self.tolerance,
            "tokens": self.tokens,
            "before": _head(self.before),
            "after": _head(self.after),
            "causes": [c.to_dict() for c in self.causes],
            "layout": [c.to_dict() for c in self.layout],
            "tokens_by_kind": [
                {"kind": k, "before": round(a, 1), "after": round(b, 1)} for k, a, b in self.by_kind
            ],
        }


def compare_logs(
    before: TraceReport,
    after: TraceReport,
    layouts: tuple[Layout, Layout] | None = None,
    *,
    tolerance: float = WORSE,
) -> LogDiff:
    """What changed from one log to another: causes that are new or grew first. `layouts`: of the
    same two logs, by `layouts.layout_of`."""
    old, new = _by_key(before.causes), _by_key(after.causes)
    rows: list[Changed] = []
    for key in dict.fromkeys([*new, *old]):
        a, b = old.get(key), new.get(key)
        cause = b or a
        assert cause is not None
        was, now = _share(a, before), _share(b, after)
        state: State = "same"
        if a is None or b is None:
            state = "new" if a is None else "gone"
        elif abs(now - was) >= max(GROWN, was / 10):
            state = "grown" if now > was else "shrunk"
        rows.append(
            Changed(
                state,
                cause,
                was,
                now,
                a.tokens_lost if a is not None else 0,
                b.tokens_lost if b is not None else 0,
            )
        )
    rows.sort(key=lambda r: (_ORDER.index(r.state), -abs(r.growth)))
    return LogDiff(
        before,
        after,
        tuple(rows),
        layout=tuple(layout_changes(*layouts)) if layouts is not None else (),
        by_kind=_kinds(*layouts) if layouts is not None else (),
        tolerance=tolerance,
    )


def _by_key(rows: Sequence[CauseRow]) -> dict[tuple[str, str | None, str], CauseRow]:
    """Rows by what they are; of two that are the same in two places, the costlier one."""
    out: dict[tuple[str, str | None, str], CauseRow] = {}
    for row in rows:
        place = "messages" if row.segment.startswith("messages") else row.segment
        out.setdefault((row.reason, row.rule, "" if row.rule is not None else place), row)
    return out


def _share(cause: CauseRow | None, report: TraceReport) -> float:
    if cause is None or not report.prompt_tokens:
        return 0.0
    return cause.tokens_lost / report.prompt_tokens


def _kinds(before: Layout, after: Layout) -> tuple[tuple[str, float, float], ...]:
    names = dict.fromkeys([*before.by_kind, *after.by_kind])
    return tuple((n, before.by_kind.get(n, 0.0), after.by_kind.get(n, 0.0)) for n in names)


def _head(report: TraceReport) -> dict[str, Any]:
    return {
        "requests": report.requests,
        "sessions": report.sessions,
        "prompt_tokens": report.prompt_tokens,
        "tokens_lost": sum(c.tokens_lost for c in report.causes),
        "hit_rate": report.rates.to_dict(),
        "measured": report.measured.to_dict(),
        "models": dict(report.models),
    }
