"""What the numbers are, where they come from, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping

from agentkv.trace.output import words
from agentkv.trace.output.page.markup import Markup, el, join
from agentkv.trace.output.page.section import Section, section
from agentkv.trace.report import TraceReport


def about(report: TraceReport) -> Section:
    r = report.rates
    rows: list[tuple[str, Markup | str]] = [
        (
            "Reused",
            "The log replayed, call by call, on a cache like the one below: the share of prompt tokens "
            f"that it would have served. The mean over requests is {words.percent(r.requests_now)}.",
        ),
    ]
    if r.fixed is not None:
        rows.append(
            (
                "Mended",
                "The same replay of a copy in which the causes above are mended. The mean over "
                f"requests is {words.percent(r.requests_fixed)}.",
            )
        )
    rows += [
        (
            "Ceiling",
            "What an unlimited cache could serve if every text that an earlier call also held were in "
            f"its place. The mean over requests is {words.percent(r.requests_ceiling)}.",
        ),
        ("Cache", report.cache),
        (
            "Tokens",
            f"Counted by {report.tokenizer}."
            if report.exact
            else f"Estimated ({report.tokenizer}); --tokenizer PATH counts them.",
        ),
    ]
    m = report.measured
    if m.requests:
        said = (
            f"{words.plural(m.requests, 'request')} came with the provider's own count: "
            f"{words.count(m.cached_tokens)} of {words.plural(m.prompt_tokens, 'prompt token')} cached."
        )
        if m.written_tokens:
            said += f" {words.plural(m.written_tokens, 'token')} were written to its cache."
        rows.append(("Measured", said + " It is never mixed with the replay."))
    else:
        rows.append(("Measured", "The log does not say what a provider had cached."))
    rows.append(
        (
            "Healthy",
            f"{words.plural(report.first_calls, 'first call')}, "
            f"{words.count(report.appended)} that only appended. Neither is a loss.",
        )
    )
    if report.evicted_tokens:
        rows.append(
            ("Evicted", f"{words.plural(report.evicted_tokens, 'token')} lost to a full pool.")
        )
    if report.failed:
        rows.append(
            ("Failed", f"{words.plural(report.failed, 'request')} that got no answer, left out.")
        )
    if report.models:
        rows.append(("Models", _counts(report.models)))
    if report.formats:
        rows.append(("Formats", _counts(report.formats)))
    notes = None
    if report.notes:
        notes = el("ul", (el("li", note) for note in report.notes), class_="notes")
    body = join(
        el("dl", (el("div", el("dt", k), el("dd", v)) for k, v in rows), class_="about"),
        notes,
        _problems(report),
    )
    return section("about", "About the numbers", None, body)


def _counts(values: Mapping[str, int]) -> str:
    shown = sorted(values.items(), key=lambda row: -row[1])
    said = [f"{name or 'unknown'} ({words.count(n)})" for name, n in shown[:12]]
    if len(shown) > 12:
        said.append(f"{len(shown) - 12} more")
    return ", ".join(said)


def _problems(report: TraceReport) -> Markup | None:
    if not report.problems:
        return None
    said = ", ".join(f"{words.count(n)} {kind}" for kind, n in report.problems.items())
    return el(
        "div",
        el("h3", "What could not be read"),
        el("p", f"{said}. The rest is reported; these lines are in no number."),
        el("ul", (el("li", el("code", line)) for line in report.problem_lines[:20])),
        class_="problems",
    )
