"""The top of the page: which log this is, what it reused, and what it could have reused."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.trace.output import words
from agentkv.trace.output.page.markup import Markup, el, join
from agentkv.trace.output.page.section import bar, legend
from agentkv.trace.report import TraceReport


def header(report: TraceReport, title: str, contents: Sequence[tuple[str, str]]) -> Markup:
    return el(
        "header",
        el("p", "Trace report", class_="eyebrow"),
        el("h1", title),
        el("p", _facts(report), class_="facts"),
        None if not report.requests else el("div", _answer(report), _bars(report), class_="hero"),
        el(
            "nav",
            el("ul", (el("li", el("a", said, href=f"#{id}")) for id, said in contents)),
            aria_label="Contents",
        ),
    )


def _facts(report: TraceReport) -> str:
    said = [
        words.plural(report.requests, "request"),
        words.plural(report.sessions, "session"),
        f"{'' if report.exact else 'about '}{words.plural(report.prompt_tokens, 'prompt token')}",
    ]
    if len(report.models) == 1:
        said.append(next(iter(report.models)))
    elif report.models:
        said.append(words.plural(len(report.models), "model"))
    known = [b.time for b in report.timeline if b.time is not None]
    if known:
        first, last = words.moment(min(known)), words.moment(max(known))
        zone = ""
        if not first.startswith("+"):
            # To the minute: seconds say nothing of a whole log.
            first, last, zone = first[:-3], last[:-3], " UTC"
        said.append(first + zone if first == last else f"{first} to {last}{zone}")
    return " · ".join(s for s in said if s)


def _answer(report: TraceReport) -> Markup:
    r = report.rates
    after: list[Markup | str] = []
    if r.fixed is not None and r.fixed - r.now >= 0.0005:
        after += [
            "With the causes below mended it would be ",
            el("b", words.percent(r.fixed)),
            "; ",
        ]
        after += ["an unlimited cache could serve ", el("b", words.percent(r.ceiling)), "."]
    elif r.ceiling - r.now >= 0.0005:
        after += ["An unlimited cache could serve ", el("b", words.percent(r.ceiling)), "."]
    else:
        after += ["That is all that these prompts have in common with earlier ones."]
    worst = None
    if report.causes:
        c = report.causes[0]
        name = f"{c.rule} {c.name}" if c.rule else c.name
        worst = el(
            "p",
            "Most was lost to ",
            el("a", name, href="#cause-1"),
            f" in {c.segment}: {words.plural(c.tokens_lost, 'token')}, "
            f"{words.percent(c.share)} of the loss.",
        )
    return el(
        "div",
        el(
            "p",
            el("span", words.percent(r.now), class_="number"),
            " of the prompt tokens were reused.",
            class_="big",
        ),
        el("p", join(*after)),
        worst,
        class_="answer",
    )


def _bars(report: TraceReport) -> Markup:
    r = report.rates
    rows = [
        _row(
            "As it is",
            [("across", r.across), ("reused", max(0.0, r.now - r.across))],
            r.now,
            r.ceiling,
        )
    ]
    if r.fixed is not None:
        rows.append(_row("Mended", [("reused", r.fixed)], r.fixed, r.ceiling))
    rows.append(_row("Ceiling", [("reused", r.ceiling)], r.ceiling, r.ceiling))
    m = report.measured
    if m.requests and m.prompt_tokens:
        rate = m.cached_tokens / m.prompt_tokens
        said = f"Measured by providers: {words.percent(rate)}"
        rows.append(
            el(
                "tr",
                el(
                    "th",
                    "Measured",
                    el("small", f"{words.count(m.requests)} of {words.count(report.requests)}"),
                    scope="row",
                ),
                el("td", bar([("measured", rate)], said)),
                el("td", words.percent(rate), class_="n"),
                class_="apart",
            )
        )
    items = [("reused", "reused in its own session"), ("across", "from another session")]
    if r.across <= 0:
        items = [("reused", "reused")]
    items += [("lost", "could have been reused"), ("new", "new text")]
    if m.requests and m.prompt_tokens:
        items.append(("measured", "as the providers counted"))
    return el(
        "figure",
        el(
            "table",
            el("caption", "Share of all prompt tokens"),
            el(
                "thead",
                el("tr", (el("th", h, scope="col") for h in ("State", "Picture", "Reused"))),
                class_="hidden",
            ),
            el("tbody", rows),
            class_="rates",
        ),
        legend(items),
    )


def _row(name: str, parts: list[tuple[str, float]], share: float, ceiling: float) -> Markup:
    lost = max(0.0, ceiling - share)
    said = f"{name}: {words.percent(share)} reused, {words.percent(lost)} could have been"
    return el(
        "tr",
        el("th", name, scope="row"),
        el("td", bar([*parts, ("lost", lost)], said)),
        el("td", words.percent(share), class_="n"),
    )
