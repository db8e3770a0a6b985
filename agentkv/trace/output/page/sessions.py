"""The table of sessions, those that lost most first."""

from __future__ import annotations

from agentkv.trace.output import words
from agentkv.trace.output.page.markup import Markup, el
from agentkv.trace.output.page.section import Section, bar, scroll, section
from agentkv.trace.report import SessionRow, TraceReport


def sessions(report: TraceReport) -> Section | None:
    rows = report.by_session
    if not rows:
        return None
    heads = [
        ("Session", "text", ""),
        ("Requests", "number", "n"),
        ("Prompt tokens", "number", "n"),
        ("Reused", "number", "n"),
        ("Tokens lost", "number", "n"),
    ]
    table = el(
        "table",
        el("caption", "Sessions", class_="hidden"),
        el(
            "thead",
            el(
                "tr",
                (
                    el(
                        "th",
                        said,
                        scope="col",
                        class_=look or None,
                        data_sort=kind,
                        aria_sort="descending" if said == "Tokens lost" else None,
                    )
                    for said, kind, look in heads
                ),
                el(
                    "th",
                    el("span", "Reused, lost, new", class_="hidden"),
                    scope="col",
                    class_="picture",
                ),
            ),
        ),
        el("tbody", (_row(row) for row in rows)),
        class_="sessions",
        id="session-table",
    )
    lead = "Those that lost most first."
    if report.sessions > len(rows):
        lead = f"The {len(rows)} that lost most, of {words.plural(report.sessions, 'session')}."
    if any(not r.named for r in rows):
        lead += " The log does not name all of its sessions: those in italics are inferred."
    return section("sessions", "Sessions", lead, scroll("Sessions", table))


def _row(r: SessionRow) -> Markup:
    rate = r.cached / r.prompt if r.prompt else 0.0
    lost = r.lost / r.prompt if r.prompt else 0.0
    name = r.session if r.named else el("i", r.session)
    return el(
        "tr",
        el("th", name, scope="row", data_v=r.session),
        el("td", words.count(r.requests), class_="n", data_v=r.requests),
        el("td", words.count(r.prompt), class_="n", data_v=r.prompt),
        el("td", words.percent(rate), class_="n", data_v=f"{rate:.6f}"),
        el("td", words.count(r.lost), class_="n", data_v=r.lost),
        el(
            "td",
            bar(
                [("reused", rate), ("lost", lost)],
                f"{words.percent(rate)} reused, {words.percent(lost)} lost",
            ),
            class_="picture",
        ),
    )
