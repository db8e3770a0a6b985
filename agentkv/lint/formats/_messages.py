"""Messages while a text is read, and how they become the parts of a template."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentkv.lint.source import Slice
from agentkv.lint.template import Hole, Part, Piece, Role, Text


@dataclass(slots=True)
class Message:
    """A message with a role of its own; `placeholder`: a run of messages from outside."""

    role: Role
    pieces: list[Piece]
    slice: Slice | None = None
    placeholder: bool = False
    marker: Slice | None = None


Item = Piece | Message


def span(pieces: Iterable[Piece]) -> Slice | None:
    found = [p.slice for p in pieces if p.slice is not None]
    return Slice(min(s.start for s in found), max(s.end for s in found)) if found else None


def parts(items: Iterable[Item], role: Role = "unknown") -> tuple[Part, ...]:
    """Loose pieces between messages are a message of `role`; blank ones are none."""
    out: list[Part] = []
    loose: list[Piece] = []

    def flush() -> None:
        if any(isinstance(p, Hole) or p.value.strip() for p in loose):
            out.append(Part(role=role, pieces=tuple(loose), slice=span(loose)))
        loose.clear()

    several = False
    for item in items:
        if isinstance(item, Message):
            flush()
            several = True
            out.append(
                Part(
                    role=item.role,
                    pieces=tuple(item.pieces),
                    slice=item.slice or span(item.pieces),
                    placeholder=item.placeholder,
                    marker=item.marker,
                )
            )
        else:
            loose.append(item)
    if not several:
        return (Part(role=role, pieces=tuple(loose), slice=span(loose)),) if loose else ()
    flush()
    return tuple(out)


def has_text(all_parts: Iterable[Part]) -> bool:
    return any(
        isinstance(p, Text) and p.value.strip() for part in all_parts for p in _deep(part.pieces)
    )


def _deep(pieces: Iterable[Piece]) -> Iterable[Piece]:
    for piece in pieces:
        yield piece
        if isinstance(piece, Hole):
            yield from _deep(piece.inner)


def has_hole(all_parts: Iterable[Part]) -> bool:
    return any(isinstance(p, Hole) for part in all_parts for p in part.pieces)
