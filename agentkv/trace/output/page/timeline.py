"""The timeline: what share of the prompt tokens was reused, and what was lost, along the log."""

from __future__ import annotations

from agentkv.trace.output import words
from agentkv.trace.output.page.markup import Markup, el, join
from agentkv.trace.output.page.plot import area, plot, stretched, x_axis
from agentkv.trace.output.page.section import Section, as_table, figure, legend, section
from agentkv.trace.report import Bucket, TraceReport


def timeline(report: TraceReport) -> Section | None:
    columns = report.timeline
    if len(columns) < 2:
        return None
    n = len(columns)
    reused = [_share(b.cached, b.prompt) for b in columns]
    lost = [min(1.0, r + _share(b.lost, b.prompt)) for r, b in zip(reused, columns, strict=True)]
    measured = any(b.measured is not None for b in columns)
    shares = stretched(
        el("path", d=area(reused, lost), class_="lost"),
        el("path", d=area([0.0] * n, reused), class_="reused"),
        *([_measured(columns)] if measured else []),
        columns=n,
        rows=1,
        name="Shares of the prompt tokens along the log: reused, lost, new",
    )
    most = max(b.prompt for b in columns)
    volume = stretched(
        el("path", d=area([0.0] * n, [_share(b.prompt, most) for b in columns]), class_="volume"),
        columns=n,
        rows=1,
        name="Prompt tokens along the log",
    )
    items = [
        ("reused", "reused"),
        ("lost", "could have been reused"),
        ("new", "new text"),
        ("volume", "prompt tokens"),
    ]
    if measured:
        items.append(("dots", "as the providers counted"))
    picture = el(
        "div",
        plot(
            shares, [(0, "100 %"), (0.5, "50 %"), (1, "0 %")], kind="shares", name="shares", x=None
        ),
        plot(volume, [(0, words.short(most))], kind="volume", name="volume", x=x_axis(columns)),
        class_="plots",
    )
    caption = join(
        f"Each column is {_width(columns)} of the log, in its order. The lower strip is the size of "
        "their prompts.",
        legend(items),
    )
    table = as_table(
        "Shares along the log",
        ["Requests", "From", "Prompt tokens", "Reused", "Lost", "Lost to"]
        + (["Measured"] if measured else []),
        (_cells(b, measured) for b in columns),
    )
    lead = (
        "A rate that falls at one moment has a cause that began there; look for what was deployed."
    )
    return section(
        "timeline",
        "When it was lost",
        lead,
        el("p", class_="readout", id="readout", hidden=True),
        figure(picture, caption, table, id="over-time"),
    )


def _share(part: int, whole: int) -> float:
    return max(0.0, min(1.0, part / whole)) if whole else 0.0


def _width(columns: tuple[Bucket, ...]) -> str:
    sizes = {b.end - b.start for b in columns}
    if len(sizes) == 1:
        return words.plural(sizes.pop(), "request")
    return f"{min(sizes):,} to {max(sizes):,} requests"


def _measured(columns: tuple[Bucket, ...]) -> Markup:
    """A line through the columns of which a provider said how much it had cached."""
    out, on = [], False
    for i, b in enumerate(columns):
        if b.measured is None:
            on = False
            continue
        y = f"{1 - _share(b.measured, b.prompt):.3f}"
        out.append(f"V{y}H{i + 1}" if on else f"M{i} {y}H{i + 1}")
        on = True
    return el("path", d="".join(out), class_="measured-line", vector_effect="non-scaling-stroke")


def _cells(b: Bucket, measured: bool) -> list[str]:
    to = ", ".join(
        f"{words.reason(name)} {words.count(n)}"
        for name, n in sorted(b.reasons.items(), key=lambda row: -row[1])
        if n
    )
    row = [
        f"{b.start + 1:,}–{b.end:,}",
        words.moment(b.time),
        words.count(b.prompt),
        words.percent(_share(b.cached, b.prompt)),
        words.percent(_share(b.lost, b.prompt)),
        to,
    ]
    if measured:
        row.append("unknown" if b.measured is None else words.percent(_share(b.measured, b.prompt)))
    return row
