"""Finds the line of a source that renders what a log shows to have changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentkv.lint.analyse import Analysis
from agentkv.lint.finding import Finding
from agentkv.lint.locate import Sent, Spot, best, hole_at, parts_of
from agentkv.lint.source import Slice
from agentkv.lint.template import HistoryOpKind, Hole, Request, Template
from agentkv.trace.call import Call, Part, Where
from agentkv.trace.render import Renderer
from agentkv.trace.report import CauseRow, Example

HISTORY: dict[str, tuple[HistoryOpKind, ...]] = {
    "KV401": ("front_truncation",),
    "KV402": ("edited_in_place", "system_mutated"),
    "KV403": ("summarised_into_head",),
    "KV405": ("inserted_mid", "inserted_front"),
    "KV406": ("reasoning_stripped",),
    "KV407": ("reserialised",),
    "KV408": ("mid_trim",),
}
TOOLS = ("KV501", "KV502", "KV503", "KV504")
SETTINGS = {
    "KV505": ("response_format",),
    "KV507": ("model",),
    "KV707": ("prompt_cache_key", "cache_salt"),
}
_FIRST = 80
"""Characters of a value that are looked for in the text."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A line of the source, and the linter's own finding there, if it has one."""

    analysis: Analysis
    slice: Slice
    what: str
    template: Template | None = None
    request: Request | None = None
    own: Finding | None = None


class Join:
    """Finds lines for causes among the files that were read."""

    def __init__(
        self, analyses: Sequence[Analysis], calls: dict[Where, Call], renderer: Renderer
    ) -> None:
        self._analyses = analyses
        self._calls = calls
        self._renderer = renderer
        self._home: dict[int, Analysis] = {}
        self._templates: list[tuple[Template, int]] = []
        seen: set[int] = set()
        for analysis in analyses:
            document = analysis.document
            asked = [r.template for r in document.requests if r.template is not None]
            for template in [*document.templates, *asked]:
                if id(template) in seen:
                    continue
                seen.add(id(template))
                self._home[id(template)] = analysis
                self._templates += [(template, i) for i, _ in parts_of(template)]

    def place(self, cause: CauseRow) -> Placed | None:
        """The line of a cause; None where none is found, or more than one might be it."""
        rule = cause.rule
        for example in (cause.worst, cause.first):
            call = self._calls.get(example.where)
            if call is None:
                continue
            if rule in TOOLS or rule in HISTORY or rule in SETTINGS:
                found = self._asked(rule, call)
            else:
                found = self._rendered(cause, example, call)
            if found is not None:
                return found
        return None

    # -- a hole of a template

    def _rendered(self, cause: CauseRow, example: Example, call: Call) -> Placed | None:
        part = next((p for p in call.parts if p.name == example.segment), None)
        if part is None or any(p.redacted for p in part.pieces):
            return None
        offset = self._offset(example, call, part)
        if offset is None:
            return None
        sent = Sent(part.text)
        at = sent.at(offset)
        places: list[Placed] = []
        for fit in best(self._templates, sent, part.role):
            analysis = self._home[id(fit.template)]
            pieces = fit.template.parts[fit.part].pieces
            spots = hole_at(pieces, sent, at)
            place = self._chosen(cause, fit.template, fit.part, spots, analysis)
            if place is not None:
                places.append(place)
        # The same text may be reached as a template and through the request that sends it.
        lines = {(p.analysis.source.path, p.slice) for p in places}
        return places[0] if len(lines) == 1 else None

    def _offset(self, example: Example, call: Call, part: Part) -> int | None:
        """Where in the part's text the change stands: where its value is quoted, nearest to its
        token; else where the text parts from that of the call that it is compared with."""
        text = part.text
        near = self._near(example, call, part)
        now = (example.now or "")[:_FIRST].rstrip("…")
        label = (example.before or "").lstrip("…")
        for quoted in (label + now, now):
            if not quoted.strip():
                continue
            found = list(_all(text, quoted))
            if found:
                start = min(found, key=lambda i: abs(i - near))
                return start + len(quoted) - len(now)
        before = self._calls.get(example.compared_with) if example.compared_with else None
        other = next((p for p in before.parts if p.name == part.name), None) if before else None
        if other is None or other.text == text:
            return None
        return _common(text, other.text)

    def _near(self, example: Example, call: Call, part: Part) -> int:
        """About which character of the part a token of the prompt is."""
        number = call.parts.index(part)
        spans = [s for s in self._renderer.render(call).pieces if s.part == number]
        if not spans:
            return 0
        start, end = spans[0].start, spans[-1].end
        share = (example.at - start) / (end - start) if end > start else 0.0
        return round(len(part.text) * min(1.0, max(0.0, share)))

    def _chosen(
        self,
        cause: CauseRow,
        template: Template,
        part: int,
        spots: Sequence[Spot],
        analysis: Analysis,
    ) -> Placed | None:
        own = {
            f.at[1]: f
            for f in (*analysis.findings, *analysis.suppressed)
            if f.at is not None and f.at[0] == part and _same(f.template, template)
        }
        if len(spots) > 1:
            # Nothing fixed stands between them: the one that the linter holds for such a value.
            spots = [s for s in spots if s.piece in own and own[s.piece].code == cause.rule]
        if len(spots) != 1:
            return None
        spot = spots[0]
        where = _slice(spot.hole) or _slice(_piece(template, part, spot.piece))
        if where is None:
            return None
        kind = f" ({cause.value})" if cause.value else ""
        return Placed(
            analysis,
            where,
            f"`{spot.hole.expr}`{kind}:",
            template=template,
            own=own.get(spot.piece),
        )

    # -- a request

    def _asked(self, rule: str | None, call: Call) -> Placed | None:
        """The request that does it: one of those whose prompt this is, else the only one of all."""
        assert rule is not None
        home = {id(a) for a in self._homes(call)}
        all_of = [p for a in self._analyses for p in _deeds(rule, a)]
        near = [p for p in all_of if id(p.analysis) in home]
        for group in (near, all_of):
            flagged = [p for p in group if p.own is not None and p.own.code == rule]
            for some in (flagged, group):
                places = {(p.analysis.source.path, p.slice): p for p in some}
                if len(places) == 1:
                    return next(iter(places.values()))
        return None

    def _homes(self, call: Call) -> list[Analysis]:
        """The files whose templates made the fixed text of a call."""
        out: list[Analysis] = []
        for part in call.parts[:3]:
            if part.kind in ("tools", "history") or any(p.redacted for p in part.pieces):
                continue
            text = part.text
            sent = Sent(text)
            out += [self._home[id(f.template)] for f in best(self._templates, sent, part.role)]
            out += [
                self._home[id(template)]
                for template, index in self._templates
                if template.parts[index].static
                and (fixed := _fixed(template, index))
                and len(fixed) >= 12
                and fixed in sent.text
            ]
        return out


def _fixed(template: Template, part: int) -> str:
    pieces = template.parts[part].pieces
    return Sent("".join(p.value for p in pieces if not isinstance(p, Hole))).text.strip()


def _deeds(rule: str, analysis: Analysis) -> list[Placed]:
    """Places of a file that can be what a rule is about, which is no hole of a template."""
    document = analysis.document
    found = [f for f in (*analysis.findings, *analysis.suppressed) if f.code == rule]
    out = [
        Placed(analysis, f.slice, f"`{_quoted(analysis, f.slice)}`:", request=f.request, own=f)
        for f in found
    ]
    taken = {f.slice for f in found}
    for request in document.requests:
        slices: list[Slice] = []
        if rule in TOOLS and request.tools is not None:
            slices.append(request.tools.slice)
        slices += [op.slice for op in request.history if op.kind in HISTORY.get(rule, ())]
        slices += [s.slice for s in request.settings if s.name in SETTINGS.get(rule, ())]
        for where in slices:
            if where not in taken and not any(t.within(where) or where.within(t) for t in taken):
                taken.add(where)
                what = f"`{_quoted(analysis, where)}`:"
                out.append(Placed(analysis, where, what, request=request))
    return out


def _quoted(analysis: Analysis, where: Slice) -> str:
    text = " ".join(analysis.source[where].split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _same(one: Template | None, two: Template) -> bool:
    return one is two or (one is not None and one.slice == two.slice and one.parts == two.parts)


def _piece(template: Template, part: int, piece: int) -> Hole | None:
    found = template.parts[part].pieces[piece]
    return found if isinstance(found, Hole) else None


def _slice(hole: Hole | None) -> Slice | None:
    return None if hole is None else hole.slice or hole.defined_at


def _all(text: str, quoted: str) -> Iterable[int]:
    at = text.find(quoted)
    while at >= 0:
        yield at
        at = text.find(quoted, at + 1)


def _common(a: str, b: str) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)
