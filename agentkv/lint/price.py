"""What a slot costs, in tokens that a call computes again, and how severe that is.

tokens lost = tokens that could have been reused behind the slot x share of calls in which it changed.
Behind a slot stand the static tokens of its template and, where a conversation follows, the
conversation too, for values that change within one. All thresholds are here.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentkv.lint.context import Context
from agentkv.lint.finding import Bar, Severity
from agentkv.lint.spot import Spot
from agentkv.lint.template import Hole, Level, Part, Request, Template, Text


@dataclass(frozen=True, slots=True)
class Scale:
    """From how many tokens lost in an average call a finding is an error, a warning."""

    error: int
    warning: int

    def severity(self, lost: float, most: Severity = "error") -> Severity:
        if lost >= self.error and most == "error":
            return "error"
        if lost >= self.warning and most != "info":
            return "warning"
        return "info"


VOLATILE = Scale(error=128, warning=32)
"""For what changes at every call, without anybody having chosen that."""
ORDER = Scale(error=2000, warning=32)
"""For layouts that another order would improve."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`behind`: static tokens behind the slot; `history`: tokens of conversation that are lost too;
    `share` of calls in which it changed."""

    behind: int
    history: int
    share: float
    severity: Severity

    @property
    def lost(self) -> int:
        return round((self.behind + self.history) * self.share)


def share(spot: Spot, context: Context) -> float:
    """Share of calls before which the slot has changed."""
    traffic = context.traffic
    if spot.traits & {"clock", "date"} and spot.level == "call":
        if "clock" in spot.traits and not spot.hourly:
            return traffic.share("call")
        if spot.hourly:
            return traffic.hour
        return traffic.day if spot.hole.known else traffic.share("unknown")
    if spot.level in ("build", "deploy") and spot.traits & _BY_PROCESS:
        return traffic.processes
    return traffic.share(spot.level)


_BY_PROCESS = frozenset(
    {"set_order", "listing", "import_time", "locale", "host_state", "unsorted_json", "object_repr"}
)


def of(
    spot: Spot, context: Context, *, scale: Scale = ORDER, most: Severity = "error"
) -> Cost | None:
    """The cost of a slot; None where it is not worth a word.

    That is where less stands behind it than `min_tokens` and a reuse unit of the target, and where
    the whole prompt is shorter than what the target caches at all.
    """
    traffic = context.traffic
    history = traffic.history_tokens if spot.history and spot.level in ("turn", "call") else 0
    behind = spot.behind
    unit = max(context.min_tokens, context.target.granularity)
    if behind + history < unit:
        return None
    if spot.total + (traffic.history_tokens if spot.history else 0) < context.target.least(
        spot.model
    ):
        return None
    part = share(spot, context)
    lost = (behind + history) * part
    if not spot.hole.known and scale is ORDER and most == "error":
        most = "warning"  # nobody is stopped by what a name suggests
    severity = scale.severity(lost, most)
    if (
        behind < unit and scale is VOLATILE
    ):  # at the end of the system message: nothing else is lost
        severity = lower(severity)
    if spot.woven and not spot.hole.known and "user_data" in spot.traits:
        severity = "info"
    return Cost(behind, history, part, severity)


def lower(severity: Severity) -> Severity:
    return "warning" if severity == "error" else "info"


def whole(request: Request | None, template: Template | None, context: Context) -> int:
    """Tokens of a request that are the same in each call: tools, static text, and its conversation."""
    tokens = 0
    if request is not None:
        template = request.template or template
        if request.tools is not None:
            tokens += context.traffic.tool_tokens
    if template is not None:
        tokens += static(template, context)
        if talks(template):
            tokens += context.traffic.history_tokens
    return tokens


def static(template: Template, context: Context) -> int:
    return sum(context.tokens(p) for _, _, p in template.pieces())


def prefix(template: Template, context: Context) -> int:
    """Static tokens before the first thing that may change."""
    tokens = 0
    for part in template.parts:
        if part.placeholder:
            break
        for piece in part.pieces:
            if isinstance(piece, Hole) and context.level(piece) not in ("build", "deploy"):
                return tokens
            tokens += context.tokens(piece)
    return tokens


def talks(template: Template) -> bool:
    """Whether a conversation is part of the prompt, or follows it."""
    return template.followed or any(_is_history(p) for p in template.parts)


def _is_history(part: Part) -> bool:
    return part.placeholder or any(
        isinstance(p, Hole) and "history" in p.traits for p in part.pieces
    )


# -- bars -----------------------------------------------------------------------------------------

_NOMINAL = {
    "image": 800,
    "memory": 200,
    "question": 30,
    "summary": 200,
    "scratchpad": 400,
    "examples": 300,
}


def nominal(hole: Hole, context: Context) -> int:
    """Tokens that a hole may be filled with, for drawing."""
    traffic = context.traffic
    if hole.example:
        return max(1, context.count(hole.example))
    sizes = {
        "history": traffic.history_tokens,
        "context": traffic.document_tokens,
        "tools": traffic.tool_tokens,
        "schema": traffic.schema_tokens,
        **_NOMINAL,
    }
    inner = sum(
        context.tokens(p) if isinstance(p, Text) else nominal(p, context) for p in hole.inner
    )
    return max([inner, 8, *(sizes[t] for t in hole.traits if t in sizes)])


def bars(template: Template, at: tuple[int, int], context: Context) -> tuple[Bar, Bar]:
    """The layout now, and with the piece at `at` behind everything that changes less often."""
    runs: list[tuple[Level, int]] = []
    moved: tuple[Level, int] | None = None
    after: list[tuple[Level, int]] = []
    for i, j, piece in template.pieces():
        run: tuple[Level, int]
        if isinstance(piece, Text):
            run = ("build", context.tokens(piece))
        else:
            run = (context.level(piece), nominal(piece, context))
        runs.append(run)
        if (i, j) == at:
            moved = run
        else:
            after.append(run)
    if template.followed:
        tail: tuple[Level, int] = ("turn", context.traffic.history_tokens)
        runs.append(tail)
        after.append(tail)
    if moved is not None:
        place = len(after)
        while place > 0 and _RANK[after[place - 1][0]] > _RANK[moved[0]]:
            place -= 1
        after.insert(place, moved)
    return _bar(runs), _bar(after)


_RANK: dict[Level, int] = {
    "build": 0,
    "deploy": 1,
    "unknown": 2,
    "tenant": 3,
    "user": 4,
    "session": 5,
    "turn": 6,
    "call": 7,
}


def _bar(runs: list[tuple[Level, int]]) -> Bar:
    out: list[tuple[Level, int]] = []
    for level, tokens in runs:
        if tokens <= 0:
            continue
        if out and out[-1][0] == level:
            out[-1] = (level, out[-1][1] + tokens)
        else:
            out.append((level, tokens))
    return Bar(runs=tuple(out))
