"""The frame that the pictures over time share, so that one cross-hair can go through all.

A picture is stretched to the width of the page, so its text stands outside of it: axes are SVGs of
their own, whose labels are placed by per cent.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.trace.output import words
from agentkv.trace.output.page.markup import Markup, el, join, percentage
from agentkv.trace.report import Bucket

_TICKS = 6


def plot(
    picture: Markup, y: Sequence[tuple[float, str]], *, kind: str, name: str, x: Markup | None
) -> Markup:
    """`y`: (0 at the top to 1, label). `kind`: the class that sets the height."""
    return el(
        "div",
        el("svg", (_y(at, said) for at, said in y), class_="y", aria_hidden="true"),
        el("div", picture, class_="area", data_name=name),
        x,
        class_=f"plot {kind}",
    )


def _y(at: float, said: str) -> Markup:
    # Inside the frame: the first label hangs from the top, the last one stands on the bottom.
    shift = ".8em" if at <= 0.02 else "-.2em" if at >= 0.98 else ".32em"
    return el("text", said, x="100%", y=percentage(at), dy=shift, text_anchor="end")


def x_axis(timeline: Sequence[Bucket]) -> Markup:
    """Times where they are known, else numbers of requests."""
    n = len(timeline)
    labels = words.ticks([b.time for b in timeline])
    if not any(labels):
        labels = [f"#{b.start + 1:,}" for b in timeline]
    at = sorted({round(i * n / _TICKS) for i in range(_TICKS)} - {n})
    shown, last = [], ""
    for i in at:
        if labels[i] and labels[i] != last:
            shown.append((i, labels[i]))
            last = labels[i]
    return el(
        "svg",
        join(
            *(
                join(
                    el("line", x1=percentage(i / n), x2=percentage(i / n), y1="0", y2="5"),
                    el("text", said, x=percentage(i / n), y="18", dx="1"),
                )
                for i, said in shown
            )
        ),
        class_="x",
        aria_hidden="true",
    )


def stretched(*children: Markup, columns: int, rows: float, name: str) -> Markup:
    """A picture in units of columns and rows, whatever its size on the page."""
    return el(
        "svg",
        join(*children),
        viewBox=f"0 0 {columns} {rows:g}",
        preserveAspectRatio="none",
        role="img",
        aria_label=name,
    )


def number(value: float) -> str:
    """A coordinate in as few characters as will do."""
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return text[1:] if text.startswith("0.") else text or "0"


def area(low: Sequence[float], high: Sequence[float]) -> str:
    """The path between two step lines, 0 at the bottom and 1 at the top; columns in which both are
    equal are left out."""
    out, i, n = [], 0, len(low)
    while i < n:
        if high[i] <= low[i]:
            i += 1
            continue
        start = i
        top = [f"M{i} {number(1 - low[i])}"]
        while i < n and high[i] > low[i]:
            top.append(f"V{number(1 - high[i])}H{i + 1}")
            i += 1
        back = [f"V{number(1 - low[j])}H{j}" for j in range(i - 1, start - 1, -1)]
        out.append("".join([*top, *back, "Z"]))
    return "".join(out)
