"""`agentkv: ignore[KV101] why` and `agentkv: stable=deploy` in the comments of each syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import cast, get_args

from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Document, Hole, Level, Part, Piece, Request, Suppression, Template

JINJA = re.compile(r"\{#[-+]?(?P<body>.*?)[-+]?#\}", re.DOTALL)
HASH = re.compile(r"(?:^|(?<=\s))#(?P<body>[^\r\n]*)", re.MULTILINE)
HTML = re.compile(r"<!--(?P<body>.*?)-->", re.DOTALL)
HANDLEBARS = re.compile(r"\{\{~?!(?:--)?(?P<body>.*?)(?:--)?~?\}\}", re.DOTALL)

_MARK = re.compile(r"\s*agentkv:\s*(?P<rest>.*?)\s*$", re.IGNORECASE | re.DOTALL)
_IGNORE = re.compile(
    r"(?P<word>ignore(?:-file)?)\s*(?:\[(?P<codes>[^\]]*)\])?\s*(?P<why>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_STABLE = re.compile(r"stable\s*=\s*(?P<level>[a-z]+)\s*(?P<why>.*)$", re.IGNORECASE | re.DOTALL)


def suppressions(source: Source, *kinds: re.Pattern[str]) -> tuple[Suppression, ...]:
    """Every such comment in a file, in order."""
    if "agentkv:" not in source.text.lower():
        return ()
    found: dict[int, Suppression] = {}
    for kind in kinds:
        for match in kind.finditer(source.text):
            one = _read(source, match)
            if one is not None:
                found.setdefault(match.start(), one)
    return tuple(found[at] for at in sorted(found))


def _read(source: Source, match: re.Match[str]) -> Suppression | None:
    mark = _MARK.match(match["body"])
    if mark is None:
        return None
    line = source.position(match.start()).line
    row = source.line_text(line)
    column = source.position(match.start()).column - 1
    end = match.start() + len(match.group().rstrip())
    alone = not row[:column].strip() and not row[column + end - match.start() :].strip()
    place = Slice(match.start(), end)
    stable = _STABLE.match(mark["rest"])
    if stable is not None:
        level = stable["level"].lower()
        if level not in get_args(Level):
            return None
        return Suppression(
            line=line,
            codes=(),
            reason=stable["why"].strip(),
            slice=place,
            alone=alone,
            stable=cast(Level, level),
        )
    ignore = _IGNORE.match(mark["rest"])
    if ignore is None:
        return None
    return Suppression(
        line=line,
        codes=tuple(c.strip() for c in (ignore["codes"] or "").split(",") if c.strip()),
        reason=ignore["why"].strip(" -:—\n"),
        slice=place,
        alone=alone,
        whole_file=ignore["word"].lower() == "ignore-file",
    )


def stabilised(source: Source, document: Document) -> Document:
    """The document with the levels that `stable=` comments give to the holes of their line (and of
    the next, where the comment stands alone)."""
    lines: dict[int, Level] = {}
    for one in document.suppressions:
        if one.stable is not None:
            lines[one.line + 1 if one.alone else one.line] = one.stable
    if not lines:
        return document

    def piece(p: Piece) -> Piece:
        if not isinstance(p, Hole):
            return p
        inner = tuple(piece(i) for i in p.inner)
        level = lines.get(source.position(p.slice.start).line) if p.slice is not None else None
        if level is None:
            return replace(p, inner=inner)
        return replace(p, level=level, known=True, why="a comment", inner=inner)

    def part(p: Part) -> Part:
        return replace(p, pieces=tuple(piece(i) for i in p.pieces))

    def template(t: Template) -> Template:
        return replace(t, parts=tuple(part(p) for p in t.parts))

    old = {id(t): template(t) for t in document.templates}
    return replace(
        document,
        templates=tuple(old.values()),
        requests=tuple(_with(r, old) for r in document.requests),
    )


def _with(request: Request, old: dict[int, Template]) -> Request:
    if request.template is None or id(request.template) not in old:
        return request
    return replace(request, template=old[id(request.template)])


def holes(pieces: Iterable[Piece]) -> Iterable[Hole]:
    """Every hole of pieces, those inside sections too."""
    for piece in pieces:
        if isinstance(piece, Hole):
            yield piece
            yield from holes(piece.inner)
