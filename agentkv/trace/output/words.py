"""Numbers, times and reasons in the words that every output uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv.trace.report import TraceReport

REASONS = {
    "text_changed": "text changed",
    "tool_changed": "a tool changed",
    "tool_order": "tools in another order",
    "document_order": "documents in another order",
    "history_edited": "history was edited",
    "history_truncated": "history was cut",
    "reasoning_stripped": "reasoning was stripped",
    "template": "the chat template moved text",
    "retokenized": "same text, other tokens",
    "evicted": "evicted from the pool",
    "other_namespace": "another cache namespace",
    "model_changed": "another model",
    "sub_page_tail": "less than a page",
    "unknown": "unknown",
    "first_call": "first call",
    "appended": "appended (healthy)",
}

VALUES = {
    "clock": "a clock",
    "iso_time": "a time stamp",
    "time": "a time stamp",
    "date": "a date",
    "uuid": "a random id",
    "counter": "a counter",
    "email": "an e-mail address",
    "name": "a name",
    "number": "a number",
    "locale": "a number format",
    "whitespace": "white space",
    "unicode": "another Unicode form",
    "image": "an image",
}
"""What kind of value changes, for a row's second line; an unknown kind is shown as it is."""

_RELATIVE = 10**8
"""Times below this count from the start of the trace: as a date they would be before 1973."""


def reason(name: str) -> str:
    return REASONS.get(name, name.replace("_", " "))


def value(name: str | None) -> str:
    return "" if name is None else VALUES.get(name, name.replace("_", " "))


def percent(share: float | None) -> str:
    """`41.2 %`; more digits near 0 and 100, so that 99.96 is not shown as all. `unknown` for None."""
    if share is None:
        return "unknown"
    n = share * 100
    for digits in (1, 2, 3):
        text = f"{n:.{digits}f}"
        if (text.strip("0.") or n == 0) and (float(text) < 100 or n >= 100):
            break
    else:
        text = "<0.001" if n < 50 else ">99.999"
    return f"{text} %"


def count(n: int) -> str:
    return f"{n:,}"


def short(n: float) -> str:
    """A count in at most four characters and a unit: `812`, `31.2k`, `4.1M`."""
    for unit in ("", "k", "M", "G"):
        if n < 999.5 or unit == "G":
            return f"{n:.0f}{unit}" if unit == "" or n >= 100 else f"{n:.1f}{unit}"
        n /= 1000
    raise AssertionError("unreachable")


def plural(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def moment(seconds: float | None) -> str:
    """A time in UTC to the second, or `+12.3 s` from the start of a trace. "" for None."""
    if seconds is None:
        return ""
    if abs(seconds) < _RELATIVE:
        return f"+{seconds:,.1f} s"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return ""


def ticks(times: Sequence[float | None]) -> list[str]:
    """A short label for each time: as much of it as tells them apart, "" for None."""
    known = [t for t in times if t is not None]
    if not known:
        return ["" for _ in times]
    span = max(known) - min(known)
    if abs(known[0]) < _RELATIVE:
        unit, name = (3600, "h") if span > 7200 else (60, "min") if span > 120 else (1, "s")
        return ["" if t is None else f"+{t / unit:.0f} {name}" for t in times]
    form = "%H:%M:%S" if span < 600 else "%H:%M" if span < 36 * 3600 else "%a %d %b"
    if 36 * 3600 <= span < 4 * 86400:
        form = "%a %H:%M"
    return ["" if t is None else _utc(t, form) for t in times]


def _utc(seconds: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (OverflowError, OSError, ValueError):
        return ""


def nothing_lost(report: TraceReport) -> str:
    """What to say of a log without causes. Of hashes nobody can tell what the loss is due to."""
    if not report.first_calls and not report.appended:
        return "Causes are unknown: the log holds no text to compare."
    if unserved(report):
        return "Nothing was lost to the prompts: they go on as the earlier ones did."
    return "Nothing was lost: every prompt reused what it could."


def unserved(report: TraceReport) -> int:
    """Tokens between `now` and the ceiling that no cause accounts for: the prompts are in order, but
    this cache does not serve them. 0 where it is next to nothing."""
    r = report.rates
    between = round((r.ceiling - r.now) * report.prompt_tokens)
    left = between - sum(c.tokens_lost for c in report.causes)
    return left if left >= report.prompt_tokens / 200 else 0


def why_unserved(report: TraceReport) -> str | None:
    """A sentence about them, None without any."""
    n = unserved(report)
    if not n:
        return None
    return (
        f"{plural(n, 'token')} more stood in earlier prompts, but this cache ({report.cache}) serves "
        "less: its minimum, blocks, breakpoints, time to live or slots."
    )


def files(names: Sequence[str]) -> str:
    """A title for a list of logs."""
    if not names:
        return "log"
    return names[0] if len(names) == 1 else f"{names[0]} and {plural(len(names) - 1, 'other file')}"
