"""The last steps of every format: exact expressions, levels from comments, nothing empty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agentkv.lint.formats._comments import stabilised
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Hole, Part, Piece, Request, Suppression, Template


def finish(
    source: Source,
    format: str,
    templates: Iterable[Template],
    *,
    requests: Iterable[Request] = (),
    suppressions: tuple[Suppression, ...] = (),
    notes: Iterable[str] = (),
) -> Document:
    """A document in which every hole's expression is what stands at its slice."""
    old = list(templates)
    new = {id(t): replace(t, parts=tuple(_part(source, p) for p in t.parts)) for t in old}
    document = Document(
        format=format,
        templates=tuple(new[id(t)] for t in old if t.parts),
        requests=tuple(
            replace(r, template=new[id(r.template)])
            if r.template is not None and id(r.template) in new
            else r
            for r in requests
        ),
        suppressions=suppressions,
        notes=tuple(dict.fromkeys(notes)),
    )
    return stabilised(source, document)


def _part(source: Source, part: Part) -> Part:
    return replace(part, pieces=tuple(_piece(source, p) for p in part.pieces))


def _piece(source: Source, piece: Piece) -> Piece:
    if not isinstance(piece, Hole):
        return piece
    expr = source[piece.slice] if piece.slice is not None else piece.expr
    return replace(piece, expr=expr, inner=tuple(_piece(source, p) for p in piece.inner))
