"""The heat map of prefixes: how deep into the prompts the cache reached, along the log."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.trace.output import words
from agentkv.trace.output.page.markup import Markup, el, join
from agentkv.trace.output.page.plot import plot, stretched, x_axis
from agentkv.trace.output.page.section import Section, as_table, figure, legend, section
from agentkv.trace.report import Bucket, TraceReport

_LEVELS = 8
_BANDS = 8
"""Rows of the table, each some rows of the picture."""
_STRETCHES = 12
"""Columns of the table, each some columns of the picture."""


def heat(report: TraceReport) -> Section | None:
    columns = report.timeline
    # No prompt may reach the last rows: a report need not know the longest one beforehand.
    rows = max((i + 1 for b in columns for i, h in enumerate(b.heat) if h is not None), default=0)
    if len(columns) < 2 or not rows:
        return None
    paths = [
        el("path", d=d, class_=f"h{level}") for level, d in enumerate(cells(columns, rows)) if d
    ]
    longest = int(getattr(report, "longest", 0))
    bottom = words.short(longest) if longest else "longest"
    picture = el(
        "div",
        plot(
            stretched(
                *paths,
                columns=len(columns),
                rows=rows,
                name="Share that was reused, by place in the prompt and along the log",
            ),
            [(0, "start"), *([(0.5, words.short(longest / 2))] if longest else []), (1, bottom)],
            kind="heat",
            name="heat",
            x=x_axis(columns),
        ),
        class_="plots",
    )
    caption = join(
        "Down: the place in the prompt, from its first token to the end of the longest one. A column "
        "that turns pale at some depth was computed again from there on.",
        legend(
            [
                ("h0", "computed"),
                ("h3", "partly"),
                ("h7", "reused"),
                ("blank", "no prompt is that long"),
            ]
        ),
    )
    return section(
        "heat",
        "Where in the prompts",
        "A cache reuses a prompt from its first token up to the first that differs. "
        "A change at the top costs all that is below it.",
        figure(picture, caption, _table(columns, rows), id="depth"),
    )


def cells(columns: Sequence[Bucket], rows: int) -> list[str]:
    """For each level, the path of its cells; those above each other in one rectangle."""
    out: list[list[str]] = [[] for _ in range(_LEVELS)]
    for x, bucket in enumerate(columns):
        levels = [None if h is None else _level(h) for h in bucket.heat[:rows]]
        levels += [None] * (rows - len(levels))
        start = 0
        for y in range(1, rows + 1):
            if y < rows and levels[y] == levels[start]:
                continue
            level = levels[start]
            if level is not None:
                out[level].append(f"M{x} {start}h1v{y - start}h-1z")
            start = y
    return ["".join(path) for path in out]


def _level(share: float) -> int:
    """Only what was not reused at all is level 0, and only all of it is the last."""
    if share <= 0:
        return 0
    if share >= 0.995:
        return _LEVELS - 1
    return 1 + min(int(share * (_LEVELS - 2)), _LEVELS - 3)


def _table(columns: Sequence[Bucket], rows: int) -> Markup:
    n = len(columns)
    stretches = [
        columns[i * n // min(n, _STRETCHES) : (i + 1) * n // min(n, _STRETCHES)]
        for i in range(min(n, _STRETCHES))
    ]
    body = []
    for band in range(min(rows, _BANDS)):
        top = band * rows // min(rows, _BANDS)
        end = (band + 1) * rows // min(rows, _BANDS)
        cells = [f"{top / rows:.0%} to {end / rows:.0%}".replace("%", " %")]
        for stretch in stretches:
            known = [h for b in stretch for h in b.heat[top:end] if h is not None]
            cells.append(words.percent(sum(known) / len(known)) if known else "–")
        body.append(cells)
    heads = ["Depth"] + [f"Requests {s[0].start + 1:,}–{s[-1].end:,}" for s in stretches]
    return as_table("Share reused by depth, mean of each stretch", heads, body)
