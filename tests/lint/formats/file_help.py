"""Reading a text as a file of some name, and looking at what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from agentkv.lint.formats import Project, detect
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Hole, Level, Piece, Template, Text


def read(
    path: str, text: str, *, stability: Mapping[str, Level] | None = None, root: Path | None = None
) -> Document:
    """The document of a file, by the format that claims it; an unclaimed file is an empty one."""
    source = Source(path, text)
    found = detect(path, text[:4096])
    if found is None:
        return Document(format="none")
    document = found.read(source, Project(root or Path("."), stability=stability or {}))
    check(source, document)
    return document


def claimed(path: str, text: str) -> str | None:
    found = detect(path, text[:4096])
    return found.name if found is not None else None


def check(source: Source, document: Document) -> None:
    """What holds for every document: a hole is what stands at its slice, and pieces that stand in
    the file do not overlap."""
    for template in document.templates:
        for piece in walk(p for part in template.parts for p in part.pieces):
            if isinstance(piece, Hole) and piece.slice is not None:
                assert source[piece.slice] == piece.expr
                for inner in piece.inner:
                    assert inner.slice is None or inner.slice.within(piece.slice)
        for part in template.parts:
            placed = sorted(p.slice for p in part.pieces if p.slice is not None)
            for one, other in pairwise(placed):
                assert one.end <= other.start


def walk(pieces: Iterable[Piece]) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        if isinstance(piece, Hole):
            yield from walk(piece.inner)


def holes(document: Document) -> dict[str, Hole]:
    """Every hole by name, the first of each."""
    found: dict[str, Hole] = {}
    for template in document.templates:
        for piece in walk(p for part in template.parts for p in part.pieces):
            if isinstance(piece, Hole):
                found.setdefault(piece.name, piece)
    return found


def units(template: Template) -> list[tuple[str, str]]:
    """Texts (neighbours joined) and names of holes, in rendering order."""
    out: list[tuple[str, str]] = []
    for part in template.parts:
        for piece in part.pieces:
            if isinstance(piece, Text):
                if out and out[-1][0] == "text":
                    out[-1] = ("text", out[-1][1] + piece.value)
                else:
                    out.append(("text", piece.value))
            else:
                out.append(("hole", piece.name))
    return out


def roles(document: Document) -> list[tuple[str, bool]]:
    return [(p.role, p.placeholder) for t in document.templates for p in t.parts]
