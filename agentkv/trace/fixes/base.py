"""What every mending is, and small helpers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from agentkv.trace.call import Call, Part, Piece


class Mending(Protocol):
    """`learn` every call of the log first, then `mend` each of them, in the same order."""

    def learn(self, call: Call, session: str, group: str) -> None: ...

    def mend(self, call: Call, session: str, group: str) -> Call: ...


def with_parts(call: Call, parts: Iterable[Part]) -> Call:
    """A copy of a call with other parts."""
    return replace(call, parts=tuple(parts))


def with_pieces(part: Part, pieces: Sequence[Piece]) -> Part:
    """A copy of a part with other pieces."""
    return Part(part.name, part.kind, part.role, tuple(pieces))


def with_text(piece: Piece, text: str) -> Piece:
    """A copy of a piece with another text."""
    return Piece(piece.kind, text, piece.name, piece.marker)


def is_talk(part: Part) -> bool:
    """Whether a part is a message of the conversation."""
    return part.role in ("user", "assistant", "tool", "function", "model")


def is_system(part: Part) -> bool:
    return part.role in ("system", "developer") or part.kind == "instructions"


def last_user(parts: Sequence[Part]) -> int | None:
    """The last message of the user that is not a tool's result."""
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        if part.role == "user" and not any(p.kind == "tool_result" for p in part.pieces):
            return index
    return None


def add_to_tail(parts: Sequence[Part], pieces: Sequence[Piece]) -> list[Part]:
    """The same parts, with pieces at the end of the last user message (or a message of their
    own)."""
    out = list(parts)
    at = last_user(out)
    if at is None:
        out.append(Part("messages[tail]", "context", "user", tuple(pieces)))
    else:
        out[at] = with_pieces(out[at], [*out[at].pieces, *pieces])
    return out


def unlike(old: str, new: str) -> tuple[int, int]:
    """Characters that two texts begin with, and end with, in whole lines."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        mid = (low + high + 1) // 2
        low, high = (mid, high) if old[low:mid] == new[low:mid] else (low, mid - 1)
    start = new.rfind("\n", 0, low) + 1
    low, high = 0, min(len(old), len(new)) - start
    while low < high:
        mid = (low + high + 1) // 2
        same = old[len(old) - mid : len(old) - low] == new[len(new) - mid : len(new) - low]
        low, high = (mid, high) if same else (low, mid - 1)
    end = new.find("\n", len(new) - low) if low else -1
    return start, (len(new) - end - 1 if end >= 0 else 0)
