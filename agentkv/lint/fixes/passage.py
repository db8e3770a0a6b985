"""The lines or the sentence around a variable: what would move, and what ties it to its place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentkv.layout import points
from agentkv.layout.points import closing, tie
from agentkv.layout.shape import heads
from agentkv.lint.context import Context
from agentkv.lint.fixes import guards
from agentkv.lint.fixes.strips import run_of, tape_of
from agentkv.lint.fixes.tape import Uncuttable
from agentkv.lint.fixes.units import (
    Shown,
    Unit,
    blocks,
    braced,
    fenced,
    headline,
    lines,
    said_by,
    sentences,
)
from agentkv.lint.source import Source
from agentkv.lint.spot import effective
from agentkv.lint.template import Hole, Level, Template
from agentkv.prompt.segment import Segment

RANK: dict[Level, int] = {
    "build": 0,
    "deploy": 1,
    "unknown": 2,
    "tenant": 3,
    "user": 4,
    "session": 5,
    "turn": 6,
    "call": 7,
}
LABEL_WORDS = 12
SECTION_WORDS = 40
BLOCK_WORDS = 16
_LISTED = re.compile(
    r"^\s*(?:[-*+•‣·]\s|\(?(?:\d{1,3}|[a-hA-H]|[ivxIVX]{1,4})[.):、．]\s?|#+\s*\d|\|)"
)
_TAGS = re.compile(r"<(/?)([A-Za-z_][\w.:-]*)(?:\s[^<>]*)?(?<!/)>")
WORD = re.compile(r"\w+")


class Refused(ValueError):
    """Why a passage stays where it is, in words."""


class Passage:
    """The lines or the sentence around a hole, and everything around them."""

    def __init__(
        self,
        source: Source,
        format: str,
        template: Template,
        at: tuple[int, int],
        hole: Hole,
        level: Level,
        context: Context,
        documents: bool,
    ) -> None:
        self.documents = documents
        self.source, self.format, self.template = source, format, template
        self.at, self.hole, self.level, self.context = at, hole, level, context
        part = template.parts[at[0]]
        self.part = part
        self.tape = tape_of(source, format, template, part, at[1])
        start, end = run_of(part, at[1]) if format != "python" else (0, len(part.pieces))
        self.beside = said_by(part.pieces[:start]), said_by(part.pieces[end:])
        """What is read ahead of the strip and behind it, in the same message."""
        self.holes: dict[tuple[int, int], Hole] = {}
        for piece in part.pieces:
            if isinstance(piece, Hole) and piece.slice is not None:
                found = self.tape.find(piece.slice)
                if found is not None:
                    self.holes[found] = piece
        self.shown = Shown(self.tape, self.holes)
        where = self.tape.find(hole.slice) if hole.slice is not None else None
        if where is None:
            raise Uncuttable("the variable has no place of its own in the file.")
        self.where = where
        self.units = lines(self.tape)
        self._cut()

    # -- what moves -------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Find the passage: `units[first:last]`, in the innermost block that holds more than it."""
        if fenced(self.tape, self.where[0]):
            raise Refused("it stands inside a code fence.")
        if braced(self.tape, *self.where):
            raise Refused(
                "it stands inside braces, like a sample of JSON, whose order may mean something."
            )
        first = next(i for i, u in enumerate(self.units) if self.where[0] < u.stop)
        last = next(i for i, u in enumerate(self.units) if self.where[1] <= u.stop) + 1
        self.outer: list[Unit] = []
        pairs = sorted(
            (p for p in blocks(self.tape) if p[0][0] <= self.where[0] and self.where[1] <= p[1][1]),
            key=lambda p: p[1][1] - p[0][0],
        )
        for opened, closed in pairs:
            a = next(i for i, u in enumerate(self.units) if opened[0] < u.stop)
            b = next(i for i, u in enumerate(self.units) if closed[0] < u.stop) + 1
            own = self.units[a].start + lead(self.tape.text, self.units[a]) == opened[0]
            whole = own and self.tape.text[closed[1] : self.units[b - 1].end].strip() == ""
            inner = self._static(self.units[a].start, self.units[b - 1].end)
            if whole and inner <= BLOCK_WORDS:
                first, last = min(first, a), max(last, b)
                continue
            if not whole or a == first or b == last:
                raise Refused(
                    f"it stands in <{_name(self.tape.text, opened)}>, which holds other text on its lines."
                )
            # A block around the rest: the passage stays inside it.
            self.outer = self.units[: a + 1] + self.units[b - 1 :]
            self.units = self.units[a + 1 : b - 1]
            first, last = first - a - 1, last - a - 1
            break
        first, last = self._labelled(first, last)
        self.first, self.last = first, last
        self.sentence = False
        if last - first == 1:
            self._split(first)

    def _labelled(self, first: int, last: int) -> tuple[int, int]:
        """A label or heading ahead of the passage goes with it, if it is all that it introduces."""
        if first == 0:
            return first, last
        above = self.shown.text(self.units[first - 1].start, self.units[first - 1].end)
        if self._holes(first - 1):
            return first, last
        heading = heads(above)
        if heading is not None and not above.rstrip().endswith((":", "：")):
            end = last
            while end < len(self.units) and not self._heading(end):
                end += 1
            if self._static(
                self.units[last - 1].stop, self.units[end - 1].stop
            ) <= SECTION_WORDS and (end < len(self.units) or end == last):
                return self._labelled(first - 1, end)
            return first, last
        short = len(WORD.findall(above)) <= LABEL_WORDS
        if above.rstrip().endswith((":", "：")) and short and not _LISTED.match(above):
            end = last
            if _paragraph_ends(self.tape.text, self.units[last - 1]) or last == len(self.units):
                return self._labelled(first - 1, end)
        return first, last

    def _split(self, index: int) -> None:
        """Take one sentence of a line that says more."""
        line = self.units[index]
        parts = sentences(self.tape, line)
        if len(parts) < 2:
            return
        text = self.shown.text(line.start, line.end)
        if _LISTED.match(text):
            return
        own = [i for i, u in enumerate(parts) if u.start < self.where[1] and self.where[0] < u.stop]
        rest = [u for i, u in enumerate(parts) if i not in own]
        fixed = sum(self._static(u.start, u.end) for u in rest if not self._fast(u))
        if not own or fixed < 4:
            return
        self.units = [*self.units[:index], *parts, *self.units[index + 1 :]]
        self.first, self.last = index + own[0], index + own[-1] + 1
        self.sentence = True

    # -- facts about units ------------------------------------------------------------------------

    def _holes(self, index: int) -> list[Hole]:
        unit = self.units[index]
        return self.shown.within(unit.start, unit.stop)

    def _fast(self, unit: Unit) -> bool:
        """Whether a unit changes as often as the passage."""
        return any(self._as_fast(h) for h in self.shown.within(unit.start, unit.stop))

    def _as_fast(self, hole: Hole) -> bool:
        level, traits = effective(hole, self.context)
        if self.documents and "context" in traits and "question" not in traits:
            return False
        if "question" in traits and level not in ("build", "deploy"):
            return True  # the question is last, whatever changes faster
        return RANK[level] >= RANK[self.level]

    def _static(self, start: int, end: int) -> int:
        """Words of fixed text in a range."""
        text = self.shown.text(start, end)
        for (a, b), hole in self.holes.items():
            if (
                start <= a
                and b <= end
                and effective(hole, self.context)[0] not in ("build", "deploy")
            ):
                text = text.replace(self.tape.text[a:b], " ", 1)
        return len(WORD.findall(text))

    def _heading(self, index: int) -> bool:
        unit = self.units[index]
        text = self.shown.text(unit.start, unit.end)
        if text.lstrip().startswith("<") or text.rstrip().endswith((":", "：")):
            return False
        return heads(text) is not None

    def _segments(self) -> tuple[list[Segment], int]:
        """The message as segments with the passage as one, and the place of that one."""
        whole = Unit(
            self.units[self.first].start,
            self.units[self.last - 1].end,
            self.units[self.last - 1].stop,
        )
        found = [self.shown.segment(u) for u in self.units[: self.first]]
        found.append(self.shown.segment(whole, self.hole.name or "it"))
        found += [self.shown.segment(u) for u in self.units[self.last :]]
        return found, self.first

    @property
    def start(self) -> int:
        return self.units[self.first].start

    @property
    def end(self) -> int:
        return self.units[self.last - 1].end

    @property
    def stop(self) -> int:
        return self.units[self.last - 1].stop

    # -- whether it may ---------------------------------------------------------------------------

    def _check(self) -> tuple[list[Segment], int]:
        segments, index = self._segments()
        whole = self.shown.text(0, len(self.tape.text))
        said = self.shown.text(self.start, self.end)
        why = guards.language(whole)
        if why:
            raise Refused(why)
        why = tie(segments, index)
        if why:
            raise Refused(" ".join([why, *_pointers(segments, index, why)]))
        if (
            self.beside[0]
            and not self.beside[0].endswith("\n")
            and self.first == 0
            and not self.outer
        ):
            label = self.beside[0].rsplit("\n", 1)[-1].strip()
            raise Refused(f"the format writes {label!r} in front of it, on the same line.")
        behind = (
            self.shown.text(self.stop, len(self.tape.text)) if self.last < len(self.units) else ""
        )
        why = guards.demonstrative(said, self.shown.text(0, self.start), behind) or guards.pronoun(
            said, behind.split("\n", 1)[0]
        )
        if why:
            raise Refused(why)
        for ahead, after in (
            (self.tape.text[: self.start], said),
            (self.tape.text[self.start : self.stop], behind),
        ):
            line = ahead.rstrip().rsplit("\n", 1)[-1] + ahead[len(ahead.rstrip()) :]
            if guards.continues(line, after):
                raise Refused("a sentence goes on over the end of its line.")
        if _stray(self.tape.text):
            raise Refused(f"a closing tag, </{_stray(self.tape.text)[0]}>, has no opening one.")
        rule = closing(said)
        if rule:
            raise Refused(
                f"it is a rule ({headline(rule)!r}), which keeps its place and its authority."
            )
        if guards.anaphora(said):
            raise Refused(
                f"it begins with {guards.anaphora(said)!r}, which refers to what is ahead of it."
            )
        if self.last < len(self.units):
            behind = self.shown.text(self.units[self.last].start, self.units[self.last].end)
            if guards.anaphora(behind):
                raise Refused(
                    f"what follows begins with {guards.anaphora(behind)!r}, which may refer to it."
                )
        why = guards.pointed([self.beside[0]], [self.beside[1]])
        if why:
            raise Refused(why.replace("message", "text"))
        if self.outer:
            split = self.units[0].start if self.units else 0
            why = guards.pointed(
                [self.shown.text(u.start, u.end) for u in self.outer if u.start < split],
                [self.shown.text(u.start, u.end) for u in self.outer if u.start >= split],
            )
            if why:
                raise Refused(why.replace("message", "line"))
        return segments, index

    def _between(self, said: str, passed: str) -> None:
        syntax = self.template.syntax
        why = (
            guards.definitions(said, passed, syntax == "jinja" or "{%" in said + passed)
            or guards.evaluation(said, passed, syntax)
            or guards.examples(said, passed)
            or guards.roles(passed)
        )
        if why:
            raise Refused(why)


def _pointers(segments: Sequence[Segment], index: int, told: str) -> list[str]:
    """What else speaks against a move, so that the reason is told in full."""
    found = []
    for i, other in enumerate(segments):
        if i == index or repr(other.name) in told:
            continue
        words = points.said(other).back if i > index else points.said(other).below
        side = "behind" if i > index else "ahead of"
        if words:
            found.append(f"{other.name!r} says {words!r} {side} it.")
    return found[:3]


def _stray(text: str) -> list[str]:
    """Names of tags that are closed and never opened."""
    opened = {name for close, name in _TAGS.findall(text) if not close}
    return [name for close, name in _TAGS.findall(text) if close and name not in opened]


def lead(text: str, unit: Unit) -> int:
    body = text[unit.start : unit.end]
    return len(body) - len(body.lstrip(" \t"))


def _name(text: str, tag: tuple[int, int]) -> str:
    return text[tag[0] : tag[1]].strip("<>").split()[0]


def _paragraph_ends(text: str, unit: Unit) -> bool:
    return text[unit.end : unit.stop].count("\n") >= 2
