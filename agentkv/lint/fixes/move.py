"""Moving a passage with a variable behind the text that lasts longer, or to the last user message.

    A | U S | B | P        A, B, P stay as they are, character for character
    A | B S U | P          U: the passage, S: its line break, P: closing reminders, "Answer:"

What may move is a whole line, sentence, labelled line or tagged block. Everything that could tie it
to its place is asked first; a doubt is a refusal, and the refusal says what the doubt is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentkv.layout import tail
from agentkv.layout.points import closing, tie
from agentkv.lint.context import Context
from agentkv.lint.fixes import guards
from agentkv.lint.fixes.passage import LABEL_WORDS, RANK, Refused
from agentkv.lint.fixes.rewrite import Move, Rewrite, tagged
from agentkv.lint.fixes.strips import tape_of
from agentkv.lint.fixes.tape import Tape, Uncuttable
from agentkv.lint.fixes.units import (
    said_by,
)
from agentkv.lint.source import Edit, Slice, Source
from agentkv.lint.spot import effective
from agentkv.lint.template import Hole, Part, Template, Text
from agentkv.prompt.prompt import Message
from agentkv.prompt.segment import Segment

__all__ = ["Move", "Refused", "move"]


def move(
    source: Source,
    format: str,
    template: Template,
    at: tuple[int, int],
    context: Context,
    *,
    documents: bool = False,
) -> Move:
    """The edits for the hole at `at`. `documents`: texts that were retrieved stay longer than it,
    and it goes behind them. Raises `Refused`."""
    part = template.parts[at[0]]
    piece = part.pieces[at[1]] if at[1] < len(part.pieces) else None
    if part.placeholder or not isinstance(piece, Hole):
        raise Refused("the order of a conversation is never changed.")
    if part.role in ("assistant", "tool"):
        raise Refused(f"it stands in a message of the {part.role}, which is kept as it is.")
    level, traits = effective(piece, context)
    if level == "unknown":
        raise Refused("how often it changes is not known: say so in [tool.agentkv.lint.stability].")
    if RANK[level] <= RANK["deploy"]:
        raise Refused("it changes with deployments only.")
    if "history" in traits:
        raise Refused("it holds the conversation, whose place is never changed.")
    if "schema_order" in traits:
        raise Refused("it is a schema whose order means something.")
    try:
        passage = Mover(source, format, template, at, piece, level, context, documents)
    except Uncuttable as error:
        raise Refused(str(error)) from error
    return passage.move()


class Mover(Rewrite):
    """A passage on its way."""

    def move(self) -> Move:
        """Raises `Refused`."""
        segments, index = self._check()
        if self.level in ("turn", "call") and self.part.role == "system":
            moved = self._to_user()
            if moved is not None:
                return moved
        return self._to_end(segments, index)

    def _to_end(self, segments: Sequence[Segment], index: int) -> Move:
        targets = self._targets()
        if not targets:
            raise Refused("nothing that lasts longer stands behind it in its message.")
        why = ""
        for target in targets:
            passed = self.tape.text[self.stop : self.units[target].end]
            said = self.tape.text[self.start : self.end]
            self._between(said, passed)
            count = target - self.last + 1
            order = [*segments[:index], *segments[index + 1 : index + 1 + count]]
            order += [self._settled(segments[index]), *segments[index + 1 + count :]]
            found = tie(order, index + count)
            if found is None and not self._gains(self.units[target].end):
                found = "what it would pass changes as often as it does, or hardly says anything."
            if found is None:
                return self._rewrite(target)
            why = why or found
        raise Refused(f"at its new place: {why}")

    def _settled(self, segment: Segment) -> Segment:
        """The passage as it reads at its new place, with a line break of its own."""
        return Segment(
            name=segment.name,
            kind=segment.kind,
            role=segment.role,
            content=segment.content.rstrip() + "\n",
        )

    # -- to the last user message -----------------------------------------------------------------

    def _to_user(self) -> Move | None:
        """Into the last message, as a labelled block; None where that cannot be done well."""
        index = len(self.template.parts) - 1
        last = self.template.parts[index]
        if index <= self.at[0] or last.role != "user" or last.placeholder or self.template.followed:
            return None
        if self._static(self.start, self.end) > 2 * LABEL_WORDS:
            return None  # more than a value and its label: instructions keep their authority
        try:
            tape = tape_of(self.source, self.format, self.template, last)
        except Uncuttable:
            return None
        if not self._fits(tape):
            return None
        if (
            not any(
                self._static(u.start, u.end)
                for i, u in enumerate(self.units)
                if not self.first <= i < self.last
            )
            and not self.outer
        ):
            raise Refused("nothing else is in its message.")
        unit = Segment(name="question", kind="question", role="user", content=_written(last))
        if tail.refusal([Message("user", {}, (unit,))]) or closing(_written(last)):
            return None
        texts = [_written(p) for p in self.template.parts]
        why = guards.pointed(texts[: self.at[0]], texts[self.at[0] + 1 :])
        if why:
            raise Refused(why)
        self._between(
            self.tape.text[self.start : self.end],
            "".join(_raw_of(self.source, p) for p in self.template.parts[self.at[0] + 1 :]),
        )
        if len(self.tape.tokens) > 1:
            one = self.tape.token(self.start, self.stop)
            if one is None or (one.begin == self.start and one.stop == self.stop):
                return None
        text = self.tape.text[self.start : self.end]
        body = tape.encode(text.strip("\n")) if self._plain() else self._raw()
        if not tagged(text):
            body = tape.encode("<context>\n") + body + tape.encode("\n</context>")
        if "context" in effective(self.hole, self.context)[1]:
            # Documents first, the question last.
            size = len(tape.text) - len(tape.text.lstrip())
            size = min([size, *(a for a, _ in tape.holes)])
            put = body + tape.encode("\n\n")
        else:
            size = len(tape.text.rstrip()) if tape.text.rstrip() else len(tape.text)
            size = max([size, *(b for _, b in tape.holes)])
            put = tape.encode("\n\n") + body
        spot = tape.slice(size, size).start
        cut = (
            self._removal()
            if self.last < len(self.units) or self.sentence
            else self._tail_removal()
        )
        return Move(
            (Edit(cut, ""), Edit(Slice(spot, spot), put)),
            self.tape.text[self.start : self.end].strip(),
            True,
            True,
            self.hole.name,
        )

    def _plain(self) -> bool:
        return self.tape.kind in ("plain", "yaml-block")

    def _tail_removal(self) -> Slice:
        if not self.first:
            raise Refused("nothing else is in its message.")
        return self.tape.slice(self.units[self.first - 1].end, self.end)

    def _fits(self, tape: Tape) -> bool:
        """Whether the passage can be written at the other place without being changed."""
        mine = self.tape
        if tape.kind != mine.kind:
            return False
        if mine.kind != "python":
            return True
        if len(tape.tokens) != 1:
            return False
        a = mine.token(self.start, self.end)
        b = tape.tokens[0]
        if (
            a is None
            or a.quote is None
            or b.quote is None
            or (a.prefix or "").lower() != (b.prefix or "").lower()
        ):
            return False
        if "f" in (a.prefix or "").lower() and mine.owner != tape.owner:
            return False
        if a.quote == b.quote:
            return True
        raw = self.source[mine.slice(self.start, self.end)]
        return not re.search(r"[\\'\"\n]", raw)


def _written(part: Part) -> str:
    return "".join(
        p.value if isinstance(p, Text) else (said_by(p.inner) or p.expr) for p in part.pieces
    )


def _raw_of(source: Source, part: Part) -> str:
    return "".join(source[p.slice] if p.slice is not None else "" for p in part.pieces)
