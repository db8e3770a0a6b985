"""`TraceReport`: what a log reused, what it could have reused, and to what the rest was lost.

Three rates, all of prompt tokens (and of requests, each named): `now` is the replay as the log
stands, `fixed` the replay of a copy whose causes are mended, `ceiling` what an unlimited cache
would serve if every text that an earlier call also held could be reused. What a provider measured
stands beside them, and is never mixed with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.trace.call import Where

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Example:
    """One call that lost tokens to a cause, beside the earlier call that it was compared with.

    `request`: number of the call in the log, from 0. `at`: token of the prompt at which the two
    part. `was`, `now`: the text there with some context, cut to a few hundred characters; `before`
    is what both have in front of it. None where the log holds no text.
    """

    where: Where
    request: int
    session: str
    tokens_lost: int
    at: int
    segment: str
    was: str | None = None
    now: str | None = None
    before: str | None = None
    compared_with: Where | None = None
    time: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.where.file,
            "line": self.where.line,
            "request": self.request,
            "session": self.session,
            "tokens_lost": self.tokens_lost,
            "at": self.at,
            "segment": self.segment,
            "before": self.before,
            "was": self.was,
            "now": self.now,
            "compared_with": None
            if self.compared_with is None
            else {"file": self.compared_with.file, "line": self.compared_with.line},
            "time": self.time,
        }


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One cause of lost reuse, over the whole log.

    `reason`: of DESIGN's vocabulary (`text_changed`, `tool_order`, ...). `rule`, `name`: of
    `agentkv rule`, None where no rule fits. `segment`: `system`, `tools`, `messages[0]`, or
    `messages` where it is several. `count`: calls that lost tokens to it. `tokens_lost`: whole
    tokens, shared out so that all causes together sum to what was lost. `share`: of that sum.
    `value`: what kind of value changes (`clock`, `date`, `uuid`, `counter`, ...). `constant`: the
    finest grouping in which it stays the same: `day`, `tenant`, `user`, `session`, or None when it
    changes from call to call. `fix`: the name of the mending that `what-if` applies, None without.
    """

    reason: str
    rule: str | None
    name: str
    segment: str
    count: int
    tokens_lost: int
    share: float
    first: Example
    worst: Example
    advice: str
    value: str | None = None
    constant: str | None = None
    variants: int = 0
    fix: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "rule": self.rule,
            "name": self.name,
            "segment": self.segment,
            "count": self.count,
            "tokens_lost": self.tokens_lost,
            "share": self.share,
            "first": self.first.to_dict(),
            "worst": self.worst.to_dict(),
            "advice": self.advice,
            "value": self.value,
            "constant_within": self.constant,
            "variants": self.variants,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of prompt tokens, 0 to 1; `requests_*` the mean over requests instead.

    `within`, `across`: of `now`, what came from the call's own session and from others.
    `fixed` is None when no second pass over the log was possible.
    """

    now: float
    fixed: float | None
    ceiling: float
    within: float
    across: float
    requests_now: float
    requests_fixed: float | None
    requests_ceiling: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "fixed": self.fixed,
            "ceiling": self.ceiling,
            "within_sessions": self.within,
            "across_sessions": self.across,
            "by_request": {
                "now": self.requests_now,
                "fixed": self.requests_fixed,
                "ceiling": self.requests_ceiling,
            },
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """What providers said of their own caches, for the `requests` that said it."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0

    def to_dict(self) -> dict[str, Any]:
        rate = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "written_tokens": self.written_tokens,
            "hit_rate": rate,
        }


@dataclass(frozen=True, slots=True)
class Bucket:
    """One stretch of the log, in its order: for the timeline.

    `start`, `end`: request numbers, half open. `time`: of its first request, None when unknown.
    Tokens: `prompt`, `cached` (replayed), `lost` (to causes), `measured` (None: nobody said).
    `heat`: 32 shares, 0 to 1, of how much was cached at each 1/32 of the longest prompt of the
    log; None where no prompt of the bucket is that long. `reasons`: tokens lost by reason.
    """

    start: int
    end: int
    time: float | None
    prompt: int
    cached: int
    lost: int
    measured: int | None
    heat: tuple[float | None, ...]
    reasons: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "end": self.end,
            "time": self.time,
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "tokens_lost": self.lost,
            "measured_cached_tokens": self.measured,
            "heat": list(self.heat),
            "reasons": dict(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session (or inferred conversation). `session` may be inferred: see `named`."""

    session: str
    named: bool
    requests: int
    prompt: int
    cached: int
    lost: int
    first: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "session": self.session,
            "named": self.named,
            "requests": self.requests,
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "tokens_lost": self.lost,
            "first_request": self.first,
        }


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A stretch of text that `requests` prompts begin with in common; for the icicle.

    `label`: names of the parts and the first words. `tokens`: its own length. `computed`: tokens
    of it that were computed in all; `reused`: tokens of it that were served from the cache.
    """

    label: str
    tokens: int
    requests: int
    reused: int
    computed: int
    children: tuple[TreeNode, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "tokens": self.tokens,
            "requests": self.requests,
            "reused_tokens": self.reused,
            "computed_tokens": self.computed,
            "children": [c.to_dict() for c in self.children],
        }


@dataclass(frozen=True)
class TraceReport:
    """See `to_dict` for the shape that others rely on."""

    requests: int
    sessions: int
    prompt_tokens: int
    rates: Rates
    causes: tuple[CauseRow, ...]
    tokenizer: str
    exact: bool
    """Whether tokens are those of a real tokenizer, or an estimate."""
    cache: str
    """The cache model of `now` and `fixed`, in words (`agentkv, unlimited`)."""
    measured: Measured = Measured()
    timeline: tuple[Bucket, ...] = ()
    by_session: tuple[SessionRow, ...] = ()
    """At most 50, most tokens lost first."""
    tree: TreeNode | None = None
    failed: int = 0
    """Calls that the provider refused: read, but not counted in anything above."""
    first_calls: int = 0
    appended: int = 0
    evicted_tokens: int = 0
    problems: Mapping[str, int] = field(default_factory=dict)
    problem_lines: Sequence[str] = ()
    notes: Sequence[str] = ()
    """What a reader must know: tokens estimated, a cap that was reached, a log without text."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Requests by model."""
    formats: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; the keys of the first block are stable within a schema number."""
        return {
            "schema": SCHEMA,
            "requests": self.requests,
            "sessions": self.sessions,
            "prompt_tokens": self.prompt_tokens,
            "hit_rate": self.rates.to_dict(),
            "causes": [c.to_dict() for c in self.causes],
            # what may grow
            "tokens_lost": sum(c.tokens_lost for c in self.causes),
            "tokenizer": {"name": self.tokenizer, "exact": self.exact},
            "cache": self.cache,
            "measured": self.measured.to_dict(),
            "healthy": {"first_call": self.first_calls, "appended": self.appended},
            "evicted_tokens": self.evicted_tokens,
            "failed_requests": self.failed,
            "models": dict(self.models),
            "formats": dict(self.formats),
            "problems": {"counts": dict(self.problems), "first": list(self.problem_lines)},
            "notes": list(self.notes),
            "timeline": [b.to_dict() for b in self.timeline],
            "by_session": [s.to_dict() for s in self.by_session],
            "tree": None if self.tree is None else self.tree.to_dict(),
        }
