"""KV703 breakpoint-limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._markers import markers, target_of
from agentkv.lint.rules._request import RequestRule
from agentkv.lint.source import Slice
from agentkv.lint.template import Document, Request, Text


class BreakpointLimits(RequestRule):
    """Cache markers break a rule of the provider.

    ## What it catches
    More markers than a request may have (four), a marker on an empty text, a longer lifetime behind a
    shorter one.

    ## Why it costs
    The provider answers with an error, or ignores the marker without a word.

    ## Bad
    ```python
    system=[
        {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": GUIDE, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    ```

    ## Good
    ```python
    system=[
        {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": GUIDE, "cache_control": {"type": "ephemeral"}},
    ]
    ```

    ## When it is wrong
    When a gateway between you and the provider changes the markers.
    """

    code = "KV703"
    name = "breakpoint-limits"
    rank = 9

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for n, request in enumerate(document.requests):
            count = markers(request)
            if not count:
                continue
            provider = target_of(request, context)
            found = _problem(request, count, provider.max_markers)
            if found is None:
                continue
            where, said = found
            yield self.made(
                where,
                said,
                lost=0,
                share=1.0,
                severity="warning",
                slot=f"limits#{n}",
                request=request,
            )


def _problem(request: Request, count: int, most: int) -> tuple[Slice, str] | None:
    places = sorted(request.markers, key=lambda m: m.start)
    where = places[-1] if places else request.slice
    if most and count > most:
        return (
            where,
            f"This call has {count} cache markers; {most} are allowed, and the rest is an error.",
        )
    lives = [minutes(t) for t in request.marker_ttls]
    for earlier, later, at in zip(lives, lives[1:], range(1, len(lives)), strict=False):
        if earlier is not None and later is not None and later > earlier:
            place = places[at] if at < len(places) else where
            return place, (
                f"A marker that lives {_said(later)} stands behind one that lives {_said(earlier)}; the longer "
                "lifetime must come first."
            )
    for part in request.template.parts if request.template is not None else ():
        empty = all(isinstance(p, Text) and not p.value.strip() for p in part.pieces)
        if part.marker is not None and empty and part.pieces:
            return part.marker, "This cache marker is on an empty text, which cannot be cached."
    return None


def minutes(ttl: str) -> int | None:
    found = re.fullmatch(r"\s*(\d+)\s*([mh])\w*\s*", ttl)
    if found is None:
        return None
    return int(found[1]) * (60 if found[2] == "h" else 1)


def _said(minutes: int) -> str:
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"
