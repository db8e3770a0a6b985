"""Writing a move down as edits of the file: in one text, or in a text of several strings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from agentkv.lint.fixes.passage import Refused, lead
from agentkv.lint.fixes.place import Placed
from agentkv.lint.fixes.units import (
    Unit,
)
from agentkv.lint.source import Edit, Slice

_ITEM = re.compile(r"^\s*(?:[-*+•‣·]\s|\(?\d{1,3}[.):]\s|\|)")


@dataclass(frozen=True, slots=True)
class Move:
    """Edits that move `moved` to the end of its message, or (`user`) to the last user message."""

    edits: tuple[Edit, ...]
    moved: str
    user: bool
    labelled: bool
    name: str


class Rewrite(Placed):
    """A passage and its edits."""

    def _rewrite(self, target: int) -> Move:
        tape, text = self.tape, self.tape.text
        dest = self.units[target]
        passed = self.shown.text(self.stop, dest.end)
        # Under a heading of others it needs a name of its own.
        under = (
            any(self._heading(i) for i in range(self.last, target + 1))
            and not tagged(text[self.start : self.end])
            and not self._heading(self.first)
        )
        near = passed.rstrip().rsplit("\n", 1)[-1]
        body = text[self.start : self.end]
        indent = body[: len(body) - len(body.lstrip(" \t"))]
        if self.format == "python" and "\n" in text:
            self._indented(target)
        lead = "\n" if self.sentence else text[self.end : self.stop]
        extra = ""
        if (under or _ITEM.match(near)) and lead.count("\n") < 2:
            extra = "\n"
        cut = self._removal()
        if self.sentence or not self._one_token():
            lead = tape.encode(lead)
        else:
            lead = self.source[tape.slice(self.end, self.stop)]
        front = tape.encode(extra) + lead + (tape.encode(f"{indent}<context>\n") if under else "")
        back = tape.encode(f"\n{indent}</context>") if under else ""
        if self.beside[1] and not self.beside[1].startswith("\n") and target == len(self.units) - 1:
            raise Refused("the format goes on behind the last line.")
        if len(tape.tokens) > 1:
            edits = self._tokens(target, cut, front, back)
        else:
            spot = tape.slice(dest.end, dest.end).start
            edits = (Edit(cut, ""), Edit(Slice(spot, spot), front + self._raw() + back))
        return Move(edits, text[self.start : self.end].strip(), False, under, self.hole.name)

    def _one_token(self) -> bool:
        return len(self.tape.tokens) <= 1 or self.tape.token(self.start, self.stop) is not None

    def _raw(self) -> str:
        """The passage as it is written."""
        tape = self.tape
        if len(tape.tokens) > 1 and tape.token(self.start, self.end) is None:
            raise Refused("its lines are spread over several string literals.")
        return self.source[tape.slice(self.start, self.end)]

    def _removal(self) -> Slice:
        """What is taken out of the file: the passage, and the white space that parted it."""
        if self.sentence and self.first and self.tape.text[self.end : self.stop].count("\n"):
            ahead = self.units[self.first - 1]
            return self.tape.slice(ahead.end, self.end)
        if self.sentence and self.last == len(self.units) and self.first:
            return self.tape.slice(self.units[self.first - 1].end, self.end)
        return self.tape.slice(self.start, self.stop)

    def _indented(self, target: int) -> None:
        """`dedent` takes the smallest indentation of all lines: none may get another one."""
        rows = self.units[self.first : target + 1]
        widths = {lead(self.tape.text, u) for u in rows if _begins_line(self.tape.text, u)}
        if self.sentence and max((lead(self.tape.text, u) for u in self.units), default=0):
            raise Refused(
                "its lines are indented in the source, and a sentence would start one without."
            )
        first = self.units[self.first]
        if (
            len(widths) > 1
            and not first.start
            and min(widths) == 0
            and lead(self.tape.text, first) == 0
        ):
            raise Refused(
                "the first line is not indented as the others are: dedent() would see another text."
            )

    def _tokens(self, target: int, cut: Slice, front: str, back: str) -> tuple[Edit, ...]:
        """The same for a text of several strings: whole literals move, or new ones end the text."""
        tape, text = self.tape, self.source.text
        tokens = tape.tokens
        gaps = [text[a.end : b.start] for a, b in pairwise(tokens)]
        if any(not re.fullmatch(r"[\s\\]*(?:\+[\s\\]*)?", g) for g in gaps):
            raise Refused("there are comments or brackets between its string literals.")
        if len({"+" in g for g in gaps}) > 1:
            raise Refused("its string literals are joined in two ways.")
        first = next(i for i, t in enumerate(tokens) if self.start < t.stop)
        last = next(i for i, t in enumerate(tokens) if self.stop <= t.stop)
        content = next(i for i, t in enumerate(tokens) if self.end <= t.stop)
        alone = tokens[first].begin == self.start and tokens[last].stop == self.stop
        if first != last and not alone:
            raise Refused("its lines are spread over several string literals.")
        for one in tokens[first : last + 1]:
            if one.quote is None or one.prefix is None:
                raise Refused("part of it is no string literal.")
            if len(one.quote) != len(tokens[first].quote or "") or (
                "r" in one.prefix.lower() and len(one.quote) == 1
            ):
                raise Refused("its string literals are written in different ways.")
        if alone and last + 1 < len(tokens):
            cut = Slice(tokens[first].start, tokens[last + 1].start)
        dest = self.units[target]
        behind = next((i for i, t in enumerate(tokens) if t.begin == dest.stop), None)
        if behind is not None and alone and not back:
            raw = text[tokens[first].start : tokens[last].end]
            spot = tokens[behind].start
            return (Edit(cut, ""), Edit(Slice(spot, spot), raw + gaps[behind - 1]))
        if dest.end == dest.stop == len(tape.text):
            spot = tokens[-1].end
            return (
                Edit(cut, ""),
                Edit(Slice(spot, spot), gaps[-1] + self._literals(first, content, front, back)),
            )
        holder = next((t for t in tokens if t.begin < dest.end <= t.stop), None)
        if (
            first == last
            and holder is not None
            and (holder.quote, holder.prefix) == (tokens[first].quote, tokens[first].prefix)
        ):
            spot = tape.slice(max(holder.begin, dest.end - 1), dest.end).end
            return (Edit(cut, ""), Edit(Slice(spot, spot), front + self._raw() + back))
        raise Refused("its new place is in a string literal of another kind.")

    def _literals(self, first: int, last: int, front: str, back: str) -> str:
        """The passage as literals of its own, with something before and behind it."""
        text, tokens = self.source.text, self.tape.tokens
        out = []
        for i in range(first, last + 1):
            one = tokens[i]
            quote = one.quote or ""
            where = self.tape.slice(max(one.begin, self.start), min(one.stop, self.end))
            out.append(
                f"{one.prefix}{quote}{front if i == first else ''}{text[where.start : where.end]}"
                f"{back if i == last else ''}{quote}"
            )
            if i < last:
                out.append(text[one.end : tokens[i + 1].start])
        return "".join(out)


def _begins_line(text: str, unit: Unit) -> bool:
    return unit.start == 0 or text[unit.start - 1] == "\n"


def tagged(text: str) -> bool:
    return re.match(r"\s*<[A-Za-z_]", text) is not None and text.rstrip().endswith(">")
