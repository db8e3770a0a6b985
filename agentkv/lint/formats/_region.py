"""A stretch of rendered text and where each character of it stands in the file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Text


@dataclass(frozen=True, slots=True)
class Region:
    """`text` as it is read, and its place. `starts` is None where the file has it as it is, from
    `base` on; otherwise character `i` of the text is made by characters `[starts[i], starts[i+1])`
    of the file (an escape, a line break with the indentation behind it). A region that is not
    `placed` comes from elsewhere, and its pieces have no slices."""

    text: str
    base: int = 0
    starts: Sequence[int] | None = None
    placed: bool = True

    @classmethod
    def whole(cls, source: Source) -> Region:
        return cls(source.text)

    def at(self, offset: int) -> int:
        return self.base + offset if self.starts is None else self.starts[offset]

    def offset(self, place: int) -> int:
        """The inverse of `at`: the first character that begins at `place` or behind it."""
        if self.starts is None:
            return place - self.base
        return bisect_left(self.starts, place)

    def slice(self, start: int, end: int) -> Slice | None:
        if not self.placed:
            return None
        return Slice(self.at(start), max(self.at(start), self.at(end)))

    def cut(self, start: int, end: int) -> Region:
        """The part `[start, end)` as a region of its own."""
        if self.starts is None:
            return Region(self.text[start:end], self.base + start, None, self.placed)
        return Region(self.text[start:end], 0, self.starts[start : end + 1], self.placed)

    def piece(self, start: int, end: int, value: str | None = None) -> Text:
        return Text(self.text[start:end] if value is None else value, self.slice(start, end))
