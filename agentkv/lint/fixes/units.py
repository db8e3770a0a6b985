"""Lines and sentences of a message, and the larger forms that a passage belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentkv.lint.fixes.tape import Tape
from agentkv.lint.template import Hole, Piece, Text
from agentkv.prompt.segment import Segment

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """`[start, end)` is what it says, `[end, stop)` the white space that parts it from the next."""

    start: int
    end: int
    stop: int


def lines(tape: Tape) -> list[Unit]:
    """Lines that say something; empty ones belong to the line ahead of them."""
    text = tape.text
    found: list[Unit] = []
    start = 0
    for end in [*_breaks(tape), len(text)]:
        if text[start:end].strip():
            found.append(Unit(start, end, end))
        elif found:
            last = found[-1]
            found[-1] = Unit(last.start, last.end, end)
        start = end + 1
    # A separator reaches up to the next line's first character.
    out = [
        Unit(u.start, u.end, found[i + 1].start if i + 1 < len(found) else len(text))
        for i, u in enumerate(found)
    ]
    if out:
        last = out[-1]
        kept = last.start + len(text[last.start : last.end].rstrip())
        if last.end == len(text) and kept < last.end and not _in_hole(tape, last.end - 1):
            out[-1] = Unit(last.start, kept, last.stop)
    return out


def _breaks(tape: Tape) -> Iterator[int]:
    at = tape.text.find("\n")
    while at >= 0:
        if not _in_hole(tape, at):
            yield at
        at = tape.text.find("\n", at + 1)


def _in_hole(tape: Tape, at: int) -> bool:
    return any(a <= at < b for a, b in tape.holes)


_STOP = re.compile(r"(?<=[^\s.\d][.!?])[\"')\]]?(?:[ \t]+)(?=\S)|(?<=[。！？])(?=\S)")


def sentences(tape: Tape, line: Unit) -> list[Unit]:
    """Sentences of a line. One that ends with the line takes its separator."""
    out: list[Unit] = []
    start = line.start
    for found in _STOP.finditer(tape.text, line.start, line.end):
        if _in_hole(tape, found.start()) or _abbreviated(tape.text, found.start()):
            continue
        gap = len(found[0]) - len(found[0].lstrip("\"')]"))
        out.append(Unit(start, found.start() + gap, found.end()))
        start = found.end()
    out.append(Unit(start, line.end, line.stop))
    return out


def _abbreviated(text: str, at: int) -> bool:
    word = text[:at].rsplit(None, 1)[-1].lower() if text[:at].split() else ""
    return word in {
        "e.g.",
        "i.e.",
        "etc.",
        "vs.",
        "mr.",
        "mrs.",
        "dr.",
        "z.b.",
        "d.h.",
        "no.",
        "approx.",
    }


class Shown:
    """What a message says, with the texts of constants in place of their names."""

    def __init__(self, tape: Tape, holes: Mapping[Range, Hole]) -> None:
        self.tape = tape
        self.holes = holes

    def text(self, start: int, end: int) -> str:
        out: list[str] = []
        at = start
        for (a, b), hole in sorted(self.holes.items()):
            if a < at or b > end:
                continue
            out.append(self.tape.text[at:a])
            out.append(spoken(hole, self.tape.text[a:b]))
            at = b
        out.append(self.tape.text[at:end])
        return "".join(out)

    def segment(self, unit: Unit, name: str = "") -> Segment:
        text = self.text(unit.start, unit.stop)
        return Segment(
            name=name or headline(text), kind="instructions", role="system", content=text
        )

    def within(self, start: int, end: int) -> list[Hole]:
        return [h for (a, b), h in sorted(self.holes.items()) if a < end and start < b]


def spoken(hole: Hole, written: str) -> str:
    """The text of a constant; else the hole as it is written."""
    if hole.inner and "conditional" not in hole.traits and "loop" not in hole.traits:
        said = said_by(hole.inner)
        if said.strip():
            return said
    return written


def said_by(pieces: tuple[Piece, ...]) -> str:
    return "".join(p.value if isinstance(p, Text) else (said_by(p.inner) or p.expr) for p in pieces)


def headline(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 48 else words[:45] + "..."


# -- forms ----------------------------------------------------------------------------------------

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]*)(?:\s[^<>]*)?(/?)>")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


def blocks(tape: Tape) -> list[tuple[Range, Range]]:
    """Pairs of XML tags: the ranges of the opening and of the closing one."""
    stack: list[tuple[str, Range]] = []
    found: list[tuple[Range, Range]] = []
    for tag in _TAG.finditer(tape.text):
        if tag[3] or _in_hole(tape, tag.start()):
            continue
        if not tag[1]:
            stack.append((tag[2], tag.span()))
            continue
        for depth in range(len(stack) - 1, -1, -1):
            if stack[depth][0] == tag[2]:
                found.append((stack[depth][1], tag.span()))
                del stack[depth:]
                break
    return found


def fenced(tape: Tape, at: int) -> bool:
    return len(_FENCE.findall(tape.text[:at])) % 2 == 1


def braced(tape: Tape, start: int, end: int) -> bool:
    """Whether `[start, end)` stands inside braces or brackets that open before it and close behind:
    a JSON sample, a schema."""
    depth = 0
    opened = False
    for at, mark in enumerate(tape.text):
        if at == start:
            opened = depth > 0
        if mark in "{[" and not _in_hole(tape, at):
            depth += 1
        elif mark in "}]" and not _in_hole(tape, at):
            depth = max(0, depth - 1)
            if opened and at >= end and depth == 0:
                return True
    return False
