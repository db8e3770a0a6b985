"""How a report is kept small: it lives in checkpoints, one for each model call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkv.report.parts import LayoutUse, clip, folded

if TYPE_CHECKING:
    from agentkv.report.report import CacheReport

SUMMARY_BYTES = 1950
"""Limit of a summary, as ASCII JSON."""

_STEPS = ((16, 80, 8, 48), (12, 60, 4, 48), (8, 40, 2, 32), (6, 20, 1, 24), (4, 8, 0, 8))
"""Segments, characters of a quotation, entries of a list, characters of a name: tried in turn.
The last one holds for text that JSON escapes at six bytes a character."""


def summary(report: CacheReport) -> dict[str, Any]:
    """The report's dict in less than `SUMMARY_BYTES`: segments are summed by kind, quotations
    clipped, lists cut. Sums of tokens are kept."""
    out: dict[str, Any] = {}
    for small in _smaller(report):
        out = small.to_dict("full")
        if len(json.dumps(out)) < SUMMARY_BYTES:
            break
    return out


def _smaller(report: CacheReport) -> Iterator[CacheReport]:
    for count, chars, listed, name in _STEPS:
        segments = tuple(
            replace(s, name=clip(s.name, name) or "", kind=clip(s.kind, min(24, name)) or "")
            for s in folded(report.segments, count)
        )
        miss = report.miss.clipped(chars) if report.miss else None
        layout = _cut(report.layout, chars, listed, name) if report.layout else None
        yield replace(report, segments=segments, miss=miss, layout=layout)


def _cut(layout: LayoutUse, chars: int, listed: int, name: int) -> LayoutUse:
    def short(text: str) -> str:
        return clip(text, name) or ""

    def sentence(text: str) -> str:
        return clip(text, 2 * chars) or ""

    return replace(
        layout,
        moved=tuple((short(a), short(b)) for a, b in layout.moved[: 2 * listed]),
        refused=tuple((short(a), sentence(b)) for a, b in layout.refused[:listed]),
        masked=tuple(short(a) for a in layout.masked[: 2 * listed]),
        warnings=tuple(sentence(text) for text in layout.warnings[:listed]),
        proposed=tuple((short(p[0]), *p[1:]) for p in layout.proposed[:listed]),
    )
