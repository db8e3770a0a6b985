"""Which hole of which template renders a place in a text that was really sent.

The fixed lines of a template are searched for in the text, in their order; what stands between two
of them is what the holes between them became. Nothing is guessed from names: a template fits when
half of its fixed text is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentkv.lint.template import Hole, Part, Piece, Template, Text

STRONG = 6
"""Characters of a fixed run that are looked for by themselves; shorter ones only part two holes."""
LEAST_SHARE = 0.5
LEAST_TEXT = 12
"""Characters of fixed text that a template must have in common with the prompt."""

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Fit:
    """A message of a template and the text that it became. `common`: characters of fixed text that
    are in it."""

    template: Template
    part: int
    common: int
    total: int


@dataclass(frozen=True, slots=True)
class Spot:
    """A hole, and where it is in its template (None, None inside of a section: of the section)."""

    hole: Hole
    piece: int
    inside: bool = False


@dataclass(slots=True)
class _Run:
    """A piece of a message: fixed text, with where it was found, or a hole."""

    text: str
    hole: Hole | None
    piece: int
    start: int = -1

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Sent:
    """A text as it was sent, with white space evened out. `at` maps offsets into it."""

    def __init__(self, text: str) -> None:
        out: list[str] = []
        self._places: list[int] = []
        space = True
        for i, c in enumerate(text):
            if c.isspace():
                if not space:
                    out.append(" ")
                    self._places.append(i)
                space = True
            else:
                out.append(c)
                self._places.append(i)
                space = False
        self.text = "".join(out)

    def at(self, offset: int) -> int:
        """Where character `offset` of the original stands."""
        from bisect import bisect_left

        return bisect_left(self._places, offset)


def fits(template: Template, part: int, sent: Sent) -> Fit | None:
    """Whether a message of the template is (in) this text."""
    runs = _runs(template.parts[part].pieces)
    total = sum(len(r.text) for r in runs if _strong(r))
    if total < LEAST_TEXT or not any(r.hole is not None for r in runs):
        return None
    _place(runs, sent.text)
    common = sum(len(r.text) for r in runs if _strong(r) and r.start >= 0)
    if common < LEAST_TEXT or common < LEAST_SHARE * total:
        return None
    return Fit(template, part, common, total)


def hole_at(pieces: Sequence[Piece], sent: Sent, offset: int) -> list[Spot]:
    """The holes that may have rendered character `offset` of the evened text: one, several where
    nothing fixed parts them, none where fixed text stands there."""
    runs = _runs(pieces)
    _place(runs, sent.text)
    before = after = None
    for i, run in enumerate(runs):
        if run.start < 0 or run.hole is not None:
            continue
        if run.start < offset < run.end:
            return []
        if run.end <= offset:
            before = i
        elif after is None:
            after = i
    first = 0 if before is None else before + 1
    last = len(runs) if after is None else after
    found = [Spot(r.hole, r.piece) for r in runs[first:last] if r.hole is not None]
    if len(found) == 1:
        low = runs[before].end if before is not None else 0
        high = runs[after].start if after is not None else len(sent.text)
        return [_inside(found[0], sent, offset, low, high)]
    return found


def _inside(spot: Spot, sent: Sent, offset: int, low: int, high: int) -> Spot:
    """The hole inside a section, where the section's own fixed text tells which."""
    if not any(isinstance(p, Hole) for p in spot.hole.inner):
        return spot
    own = Sent(sent.text[low:high])
    found = hole_at(spot.hole.inner, own, offset - low - (len(sent.text[low:high]) - len(own.text)))
    return Spot(found[0].hole, spot.piece, inside=True) if len(found) == 1 else spot


def _runs(pieces: Sequence[Piece]) -> list[_Run]:
    """Fixed text line by line, so that an edit of one line leaves the others to be found."""
    return list(_each(pieces))


def _each(pieces: Sequence[Piece]) -> Iterator[_Run]:
    for index, piece in enumerate(pieces):
        if isinstance(piece, Text):
            for line in piece.value.splitlines():
                evened = _SPACE.sub(" ", line).strip()
                if evened:
                    yield _Run(evened, None, index)
        else:
            yield _Run("", piece, index)


def _strong(run: _Run) -> bool:
    return run.hole is None and len(run.text) >= STRONG


def _place(runs: list[_Run], text: str) -> None:
    """Find the fixed runs in their order: the long ones first, then the short ones between them."""
    at = 0
    for run in runs:
        if _strong(run):
            run.start = text.find(run.text, at)
            if run.start >= 0:
                at = run.end
    at = 0
    for i, run in enumerate(runs):
        if run.hole is not None:
            continue
        if run.start < 0 and not _strong(run):
            bound = next((r.start for r in runs[i + 1 :] if r.start >= 0), len(text))
            run.start = text.find(run.text, at, bound)
        if run.start >= 0:
            at = run.end


def best(candidates: Sequence[tuple[Template, int]], sent: Sent, role: str | None) -> list[Fit]:
    """The templates that share most with the text; several where they share as much."""
    found = [f for template, part in candidates if (f := fits(template, part, sent)) is not None]
    if not found:
        return []

    def rank(fit: Fit) -> tuple[int, bool, float]:
        own = fit.template.parts[fit.part].role
        return (fit.common, own == role, fit.common / fit.total)

    top = max(map(rank, found))
    return [f for f in found if rank(f) == top]


def parts_of(template: Template) -> Iterator[tuple[int, Part]]:
    """Messages that can be looked for: those with text and a hole."""
    for i, part in enumerate(template.parts):
        if not part.placeholder:
            yield i, part
