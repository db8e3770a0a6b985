"""A prompt as a list of units in the order in which it was rendered, and how two lists align.

A unit is a piece of the request with the tokens that it became; the header in front of it counts as
its own. The pieces of the answer follow, for a prompt that is compared with a later one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from agentkv.trace.call import Call
from agentkv.trace.render import Rendered, around
from agentkv.trace.tokens import Encoder

MAX_UNITS = 4000
"""Longer middles are compared as sets instead of as sequences."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece: tokens `[start, end)` of the prompt (or of prompt and answer).

    `name`: of its part; `kind`: of the piece; `part_kind`, `role`: of its part. `label`: the
    piece's own name (a tool's). `answer`: the model wrote it in this very call. `body`: its first
    token without the header.
    """

    part: int
    name: str
    kind: str
    part_kind: str
    role: str
    label: str
    key: str
    text: str
    redacted: bool
    start: int
    body: int
    end: int
    answer: bool = False
    encoder: Encoder | None = field(default=None, compare=False, repr=False)

    @property
    def identity(self) -> tuple[str, str, str]:
        """Equal for units that say the same in the same role."""
        return (self.role, self.kind, self.key)

    @property
    def tokens(self) -> int:
        return self.end - self.start

    @property
    def talk(self) -> bool:
        """Whether it is part of the conversation, and not of what stands in front of it."""
        return self.role in ("user", "assistant", "tool", "function", "model")

    def token_at(self, char: int) -> int:
        """The token that holds a character of its text; behind the text, its end."""
        if char >= len(self.text):
            return self.end
        starts, head = self._starts()
        if starts is None:
            return self.body + (self.end - self.body) * char // len(self.text)
        holder = bisect_right(starts, char + head) - 1
        # Bytes of one character may be several tokens, which start together.
        return self.body + bisect_left(starts, starts[max(holder, 0)])

    def token_from(self, char: int) -> int:
        """The first token that starts at a character of its text, or behind it."""
        starts, head = self._starts()
        if starts is None or char >= len(self.text):
            return self.token_at(char)
        return self.body + bisect_left(starts, char + head)

    def _starts(self) -> tuple[array[int] | None, int]:
        """Where its tokens start, and how many characters stand in front of its text; None where a
        template wrote the text in another way, and only lengths tell."""
        if self.encoder is not None:
            before, behind = around(self.kind, self.label)
            starts = self.encoder.starts(self.text, self.key, before, behind)
            if len(starts) == self.end - self.body:
                return starts, len(before)
        return None, 0


def units(call: Call, rendered: Rendered) -> list[Unit]:
    """Units of a prompt by place."""
    out: list[Unit] = []
    reach = 0
    for span in sorted(rendered.pieces, key=lambda s: (s.start, s.end)):
        part = call.parts[span.part]
        piece = part.pieces[span.piece]
        role = "tools" if part.kind == "tools" else _role(part.role)
        start = min(reach, span.start)
        out.append(
            Unit(
                span.part, part.name, piece.kind, part.kind, role, piece.name or "", piece.key,
                piece.text, piece.redacted, start, span.start, span.end,
                encoder=None if piece.redacted else rendered.encoder,
            )
        )  # fmt: skip
        reach = max(reach, span.end)
    return out


def answer_units(call: Call, rendered: Rendered) -> list[Unit]:
    """Units of the reply, behind the prompt; its tokens are shared out by characters."""
    at = len(rendered.prompt.token_ids)
    total = len(rendered.answer_ids)
    size = sum(p.size for p in call.answer) or 1
    out: list[Unit] = []
    done = 0
    for piece in call.answer:
        start = at + total * done // size
        done += piece.size
        end = at + total * done // size
        out.append(
            Unit(
                -1, "answer", piece.kind, "history", "assistant", piece.name or "", piece.key,
                piece.text, piece.redacted, start, start, end, True,
            )
        )  # fmt: skip
    return out


def _role(role: str | None) -> str:
    return "system" if role in (None, "developer", "system") else str(role)


@dataclass(frozen=True, slots=True)
class Block:
    """Units `olds` of the old list stand where units `news` of the new one do; not both empty.

    `place`: index in the new list where it stands. `last`: nothing that both have follows it.
    """

    olds: tuple[int, ...]
    news: tuple[int, ...]
    place: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class Alignment:
    """`kept`: pairs (old, new) in order; `moved`: pairs that stand in another order; `blocks`."""

    kept: tuple[tuple[int, int], ...]
    moved: tuple[tuple[int, int], ...]
    blocks: tuple[Block, ...]


def align(old: Sequence[Unit], new: Sequence[Unit]) -> Alignment:
    """Align two lists of units by identity."""
    head = 0
    while head < min(len(old), len(new)) and old[head].identity == new[head].identity:
        head += 1
    kept = [(i, i) for i in range(head)]
    mid_a, mid_b = old[head:], new[head:]
    raw: list[tuple[range, range]] = []
    if max(len(mid_a), len(mid_b)) > MAX_UNITS:
        raw.append((range(head, len(old)), range(head, len(new))))
    else:
        numbers: dict[tuple[str, str, str], int] = {}
        a = [numbers.setdefault(u.identity, len(numbers)) for u in mid_a]
        b = [numbers.setdefault(u.identity, len(numbers)) for u in mid_b]
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if tag == "equal":
                kept += [(head + i1 + d, head + j1 + d) for d in range(i2 - i1)]
            else:
                raw.append((range(head + i1, head + i2), range(head + j1, head + j2)))
    places: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for olds, _ in raw:
        for i in olds:
            places[old[i].identity].append(i)
    moved: list[tuple[int, int]] = []
    for _, news in raw:
        for j in news:
            if places.get(new[j].identity):
                moved.append((places[new[j].identity].pop(0), j))
    gone, come = {i for i, _ in moved}, {j for _, j in moved}
    blocks: list[Block] = []
    for olds, news in raw:
        left_old = tuple(i for i in olds if i not in gone)
        left_new = tuple(j for j in news if j not in come)
        if left_old or left_new:
            blocks.append(Block(left_old, left_new, left_new[0] if left_new else news.start))
    reach = max((j for _, j in [*kept, *moved]), default=-1)
    marked = tuple(Block(b.olds, b.news, b.place, b.place > reach) for b in blocks)
    return Alignment(tuple(kept), tuple(moved), marked)
