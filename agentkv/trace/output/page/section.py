"""What every section of the page is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentkv.trace.output.page.markup import Markup, el, join


@dataclass(frozen=True, slots=True)
class Section:
    id: str
    title: str
    body: Markup


def section(id: str, title: str, lead: Markup | str | None, *children: Markup) -> Section:
    """`lead`: one sentence below the title that says how to read what follows."""
    body = el(
        "section",
        el("h2", title, id=f"{id}-title"),
        None if lead is None else el("p", lead, class_="lead"),
        join(*children),
        id=id,
        aria_labelledby=f"{id}-title",
    )
    return Section(id, title, body)


def figure(picture: Markup, caption: Markup | str, table: Markup | None, *, id: str) -> Markup:
    """A picture, what it shows, and the same numbers as a table."""
    return el(
        "figure",
        picture,
        el("figcaption", caption, id=f"{id}-caption"),
        table,
        id=id,
        role="group",
        aria_labelledby=f"{id}-caption",
    )


def as_table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table that is folded away. All columns but the first are numbers."""
    body = [
        el(
            "tr",
            el("th", row[0], scope="row"),
            (el("td", cell, class_="n") for cell in row[1:]),
        )
        for row in rows
    ]
    return el(
        "details",
        el("summary", "The same as a table"),
        scroll(
            name,
            el(
                "table",
                el("caption", name, class_="hidden"),
                el(
                    "thead",
                    el(
                        "tr",
                        (
                            el("th", head, scope="col", class_="n" if i else None)
                            for i, head in enumerate(heads)
                        ),
                    ),
                ),
                el("tbody", body),
            ),
        ),
        class_="data",
    )


def scroll(name: str, *children: Markup) -> Markup:
    """What may be wider than the page: it scrolls by itself, with the keyboard too."""
    return el("div", join(*children), class_="scroll", tabindex=0, role="region", aria_label=name)


def legend(items: Iterable[tuple[str, str]]) -> Markup:
    """(class of the swatch, what it stands for)."""
    return el(
        "ul",
        (
            el("li", el("span", class_=f"swatch {name}", aria_hidden="true"), said)
            for name, said in items
        ),
        class_="legend",
    )


def bar(parts: Iterable[tuple[str, float]], name: str) -> Markup:
    """Shares of 1 in a row, as one small picture with a name."""
    x = 0.0
    rects = []
    for kind, share in parts:
        share = max(0.0, min(share, 1.0 - x))
        if share > 0:
            rects.append(
                el(
                    "rect",
                    x=f"{x * 100:.2f}%",
                    width=f"{share * 100:.2f}%",
                    height="100%",
                    class_=kind,
                )
            )
        x += share
    return el("svg", rects, class_="bar", role="img", aria_label=name)
