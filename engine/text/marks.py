"""Invisible ink: marks in a request's text that survive the chat template.

Two questions must be answered about the rendered text, which the template gives back as one
string: which characters came from which message, and which control tokens are the template's own.
Both are answered by marks that are put into the content before rendering and taken out after it.

Marks are lone surrogates. Text with lone surrogates is not valid Unicode and is refused at the
door, so no request can contain or forge a mark, whatever characters it uses. A template that works
on content (`trim`, `split`, slices) may lose some of them; what is left still tells a lot, and
removing marks can always be done exactly.

    <hi><lo>     a piece of owner number hi * 1024 + lo begins or ends here
    OPEN, CLOSE  around the text of a control token that is content, hence text
    CUT          where a continued message ends
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_HI, _LO = 0xD800, 0xDC00
MAX_OWNERS = 1000 * 1024
OPEN, CLOSE, CUT = "\udbff\udc00", "\udbff\udc01", "\udbff\udc02"
# One character class first: the scan for it is several times faster than for an alternative.
_MARK = re.compile("[\ud800-\udfff](?:(?<=[\ud800-\udbff])[\udc00-\udfff])?")


def owner_mark(owner: int) -> str:
    """The mark of owner number `owner`."""
    return chr(_HI + owner // 1024) + chr(_LO + owner % 1024)


@dataclass(frozen=True, slots=True)
class Marked:
    """Rendered text without its marks, and what they said.

    `literals`: sorted, disjoint ranges of content that spells a control token. `events`: places
    where an owner's content begins or ends, in order. `seams`: every place where a mark stood.
    """

    text: str
    literals: tuple[tuple[int, int], ...] = ()
    events: tuple[tuple[int, int], ...] = ()
    seams: frozenset[int] = field(default=frozenset())


def read_marks(rendered: str) -> Marked:
    """Take the marks out of `rendered`; offsets count the characters of what remains."""
    pieces: list[str] = []
    literals: list[tuple[int, int]] = []
    events: list[tuple[int, int]] = []
    seams: set[int] = set()
    last = at = 0
    opened: int | None = None
    for found in _MARK.finditer(rendered):
        start = found.start()
        pieces.append(rendered[last:start])
        at += start - last
        last = found.end()
        seams.add(at)
        mark = found.group()
        if mark == OPEN:
            opened = at
        elif mark == CLOSE:
            if opened is not None and at > opened:
                literals.append((opened, at))
            opened = None
        elif len(mark) == 2 and mark < "\udbff":
            events.append((at, (ord(mark[0]) - _HI) * 1024 + ord(mark[1]) - _LO))
    pieces.append(rendered[last:])
    return Marked("".join(pieces), tuple(literals), tuple(events), frozenset(seams))


@dataclass(frozen=True, slots=True)
class Pen:
    """Writes marks. `control` matches a control token; the flags say which marks are written."""

    control: re.Pattern[str]
    literals: bool = False
    contents: bool = False
    names: bool = False

    @property
    def plain(self) -> bool:
        """Whether this pen leaves text as it is."""
        return not (self.literals or self.contents or self.names)

    def text(self, text: str) -> str:
        """`text` with control tokens in it marked as text."""
        if not self.literals:
            return text
        return self.control.sub(lambda m: f"{OPEN}{m.group()}{CLOSE}", text)

    def name(self, owner: int, text: str) -> str:
        """A name of `owner` (of a tool, of a called function)."""
        return self.content([(owner, text)], wanted=self.names)

    def content(self, pieces: Iterable[tuple[int, str]], *, wanted: bool | None = None) -> str:
        """Content pieces, joined, with the mark of its owner at both ends of each.

        Marks go inside the white space at the ends of the whole, so that `trim` works as it would.
        """
        inserts: list[tuple[int, int, str]] = []
        parts = list(pieces)
        text = "".join(part for _, part in parts)
        if self.contents if wanted is None else wanted:
            low = len(text) - len(text.lstrip())
            high = len(text.rstrip())
            at = 0
            for owner, part in parts:
                begin, end = max(at, low), min(at + len(part), high)
                at += len(part)
                if begin < end:
                    # At one place an end comes before a beginning.
                    inserts.append((begin, 1, owner_mark(owner)))
                    inserts.append((end, 0, owner_mark(owner)))
        # A control token that only the joined text spells must be found as well.
        if self.literals:
            for found in self.control.finditer(text):
                inserts.append((found.start(), 2, OPEN))
                inserts.append((found.end(), -1, CLOSE))
        if not inserts:
            return text
        inserts.sort(key=lambda item: item[:2])
        out: list[str] = []
        last = 0
        for place, _, mark in inserts:
            out += (text[last:place], mark)
            last = place
        out.append(text[last:])
        return "".join(out)

    def tree(self, value: Any) -> Any:
        """`text` on every string of a JSON value, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.tree(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        return value

    def tool(self, owner: int, tool: Mapping[str, Any]) -> dict[str, Any]:
        """A canonical tool definition; `owner` is marked at its name and its descriptions."""
        if self.plain:
            return dict(tool)
        body: dict[str, Any] = {}
        for key, value in tool["function"].items():
            if key == "name":
                body[key] = self.name(owner, value)
            elif key == "description":
                body[key] = self.content([(owner, value)])
            else:
                body[key] = self._schema(owner, value)
        return {"type": tool["type"], "function": body}

    def _schema(self, owner: int, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                self.text(key): self.content([(owner, item)])
                if key == "description" and isinstance(item, str)
                else self._schema(owner, item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._schema(owner, item) for item in value]
        return self.text(value) if isinstance(value, str) else value
