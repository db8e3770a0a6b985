"""What is checked of a fix before anybody is shown it. All of it is computed, on the edited text.

- outside the edits every character is the same;
- the edited file is read again: the same prompts, messages, holes and levels;
- each prompt says the same lines and sentences, and those that did not move are in the same order;
- filled in with the same made-up values, both versions hold the same lines;
- the same fix, asked for again, finds nothing left to do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agentkv.lint.formats import Project, detect
from agentkv.lint.source import Edit, Source
from agentkv.lint.template import Document, Hole, Level, Part, Piece, Request, Template, Text

_SPLIT = re.compile(r"\r?\n|(?<=[^\s.\d][.!?])[\"')\]]?[ \t]+(?=\S)|(?<=[。！？])(?=\S)")
_SHARED = 4
_LABELS = ("<context>", "</context>")


class Unproven(ValueError):
    """What a check found."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A source as its format reads it."""

    source: Source
    document: Document


def read(source: Source, document: Document, project: Project | None) -> Reading:
    """The source read anew, by the format of `document`. Raises `Unproven`."""
    root = project.root if project is not None else Path(source.path).parent
    key = tuple(sorted((project.stability if project is not None else {}).items()))
    sinks = tuple(project.sinks) if project is not None else ()
    return Reading(source, _read(source.path, source.text, document.format, root, key, sinks))


@lru_cache(maxsize=8)
def _read(
    path: str,
    text: str,
    format: str,
    root: Path,
    stability: tuple[tuple[str, Level], ...],
    sinks: tuple[str, ...],
) -> Document:
    try:
        found = detect(path, text[:4096], name=format)
    except ValueError as error:
        raise Unproven(str(error)) from error
    if found is None:
        raise Unproven("its format is not known, so it cannot be read again.")
    made = found.read(
        Source(path, text), Project(root=root, stability=dict(stability), sinks=sinks)
    )
    if made.skipped:
        raise Unproven(f"the edited file cannot be read: {made.skipped}.")
    return made


def same_outside(source: Source, made: Source, edits: Sequence[Edit]) -> str:
    """Every character outside the edits is where it was. Raises `Unproven`."""
    old, new = 0, 0
    kept = 0
    for edit in sorted(edits, key=lambda e: (e.slice.start, e.slice.end)):
        width = edit.slice.start - old
        if source.text[old : edit.slice.start] != made.text[new : new + width]:
            raise Unproven("text outside the edits would change.")
        kept += width
        old, new = edit.slice.end, new + width
        if made.text[new : new + len(edit.text)] != edit.text:
            raise Unproven("an edit is not in its place.")
        new += len(edit.text)
    if source.text[old:] != made.text[new:]:
        raise Unproven("text outside the edits would change.")
    kept += len(source.text) - old
    return f"{kept} of {len(source.text)} characters are outside the edits, and the same"


def same_templates(before: Document, after: Document, changed: int) -> str:
    """Prompts, messages, holes and levels are the same; other prompts than `changed` wholly so."""
    if len(before.templates) != len(after.templates):
        raise Unproven(
            f"the edited file has {len(after.templates)} prompts, not {len(before.templates)}."
        )
    if [_request(r) for r in before.requests] != [_request(r) for r in after.requests]:
        raise Unproven("the edited file sends other requests.")
    count = 0
    for n, (old, new) in enumerate(zip(before.templates, after.templates, strict=True)):
        shared = (
            changed >= 0
            and old.slice.start <= before.templates[changed].slice.end
            and before.templates[changed].slice.start <= old.slice.end
        )
        if old.name != new.name or old.syntax != new.syntax or old.followed != new.followed:
            raise Unproven("the edited file is read as another prompt.")
        if [p.role for p in old.parts] != [p.role for p in new.parts]:
            raise Unproven("the edited prompt has other messages.")
        if (
            n != changed
            and not shared
            and [_part(p) for p in old.parts] != [_part(p) for p in new.parts]
        ):
            raise Unproven("another prompt of the file would change.")
        if Counter(_hole(h) for h in _holes(old)) != Counter(_hole(h) for h in _holes(new)):
            raise Unproven("the edited prompt has other variables.")
        if n == changed:
            count = sum(1 for _ in _holes(new))
    return f"read again: the same {count} variable{'s' * (count != 1)}, messages and levels"


def same_units(old: Template, new: Template) -> str:
    """The same lines and sentences; one run of them moved, and all others are in their old order."""
    a, b = _units(old), _units(new)
    for given in _unlabelled(a, b):
        length = _rotated(a, given)
        if length is not None:
            return f"the same {len(a)} lines and sentences; {length} moved, the others in their old order"
    gone = list((Counter(a) - Counter(b)).elements())
    if gone:
        raise Unproven(f"the edited prompt does not say the same ({gone[0][:60]!r} is gone).")
    raise Unproven("text that was not to move would stand in another order.")


def _unlabelled(a: list[str], b: list[str]) -> Iterator[list[str]]:
    """The edited units without the label that a fix put around what moved."""
    if len(b) == len(a):
        yield b
    elif len(b) == len(a) + 2:
        for i, unit in enumerate(b):
            if unit == _LABELS[0] and _LABELS[1] in b[i:]:
                j = b.index(_LABELS[1], i)
                yield [*b[:i], *b[i + 1 : j], *b[j + 1 :]]


def _rotated(a: list[str], b: list[str]) -> int | None:
    """How many units moved as one run to make `b` of `a`; None where that is not what happened."""
    first = 0
    while first < len(a) and a[first] == b[first]:
        first += 1
    last = len(a)
    while last > first and a[last - 1] == b[last - 1]:
        last -= 1
    if first == last:
        return 0
    # What is equal at the ends may belong to the run: two blocks that begin with the same tag.
    for start in range(first, max(first - _SHARED, 0) - 1, -1):
        for end in range(last, min(last + _SHARED, len(a)) + 1):
            x, y = a[start:end], b[start:end]
            for cut in range(1, len(x)):
                if y[0] == x[cut] and y == x[cut:] + x[:cut]:
                    return cut
    return None


def same_filled(source: Source, made: Source, old: Template, new: Template) -> str | None:
    """Filled in with made-up values, both versions hold the same lines. None: nothing to fill."""
    from agentkv.lint.fixes.filling import Unfillable, filled

    try:
        a, b = filled(source, old), filled(made, new)
    except Unfillable as error:
        raise Unproven(f"it cannot be filled in: {error}") from error
    if a is None or b is None:
        return None
    x, y = Counter(units(a)), Counter(units(b))
    for label in _LABELS:
        x.pop(label, None)
        y.pop(label, None)
    if x != y:
        raise Unproven("filled in with the same values, the edited prompt does not say the same.")
    return f"filled in with made-up values: the same {sum(x.values())} lines and sentences"


def units(text: str) -> list[str]:
    return [u.strip() for u in _SPLIT.split(text) if u and u.strip()]


def flat(pieces: Sequence[Piece]) -> str:
    return "".join(
        p.value if isinstance(p, Text) else (flat(p.inner) if _constant(p) else p.expr)
        for p in pieces
    )


def _constant(hole: Hole) -> bool:
    return bool(hole.inner) and not hole.traits & {"conditional", "loop"}


def _units(template: Template) -> list[str]:
    return [u for p in template.parts for u in units(flat(p.pieces))]


def _holes(template: Template) -> list[Hole]:
    out: list[Hole] = []

    def walk(pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Hole):
                out.append(piece)
                walk(piece.inner)

    for part in template.parts:
        walk(part.pieces)
    return out


def _hole(hole: Hole) -> tuple[object, ...]:
    return hole.expr, hole.name, hole.level, tuple(sorted(hole.traits))


def _part(part: Part) -> tuple[object, ...]:
    return part.role, part.placeholder, part.marker is None, tuple(_piece(p) for p in part.pieces)


def _piece(piece: Piece) -> tuple[object, ...]:
    if isinstance(piece, Text):
        return (piece.value,)
    return (*_hole(piece), *(_piece(p) for p in piece.inner))


def _request(request: Request) -> tuple[object, ...]:
    return (
        request.api,
        request.model,
        tuple(s.name for s in request.settings),
        tuple(h.kind for h in request.history),
        len(request.markers),
    )
