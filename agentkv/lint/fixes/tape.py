"""The text of one message as a strip that can be cut: what is read, and where it stands in the file.

    file    | role: "user", content: "Now {now}\\nYou are ..." |
    text                              Now {now}⏎You are ...        decoded, holes as they are written
    starts                            ↑         ↑                  where each character begins

Lines are cut in `text`; edits are made in the file. Moving whole lines moves whole runs of
characters of the file, with their escapes, so nothing is written anew.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from agentkv.lint.source import Slice


@dataclass(frozen=True, slots=True)
class Token:
    """A string of several that make one text: all of it in the file, and the part of the strip that
    it makes. `prefix` and `quote` are None for what is no string literal (a name in a sum)."""

    start: int
    end: int
    begin: int
    stop: int
    prefix: str | None = None
    quote: str | None = None


@dataclass(frozen=True, slots=True)
class Tape:
    """`kind`: plain, json, yaml-block, yaml-quoted, python. `holes` are ranges of `text` that are
    never cut. `newline` is how a line break is written here, `bare` how one is before an empty line
    (without indentation). `tokens` are the strings of a text that Python puts together."""

    text: str
    starts: Sequence[int]
    holes: tuple[tuple[int, int], ...]
    kind: str
    newline: str
    bare: str
    tokens: tuple[Token, ...] = ()
    owner: int = -1
    """Python: where the statement begins whose names are in scope."""

    def slice(self, start: int, end: int) -> Slice:
        """Where `[start, end)` stands. Of several strings, it must be in one."""
        if len(self.tokens) > 1:
            one = self.token(start, end)
            if one is not None and end == one.stop:
                return Slice(
                    self.starts[start] if start < end else one.end - len(one.quote or ""),
                    one.end - len(one.quote or ""),
                )
        return Slice(self.starts[start], self.starts[end])

    def encode(self, text: str) -> str:
        """Plain words and line breaks, as they are written here."""
        return (
            re.sub(r"\n(?=\n)", lambda _: self.bare, text).replace("\n", self.newline)
            if (self.bare != self.newline)
            else text.replace("\n", self.newline)
        )

    def find(self, where: Slice) -> tuple[int, int] | None:
        """The range of the strip that stands at `where` in the file."""
        start = bisect_left(self.starts, where.start)
        end = bisect_left(self.starts, where.end)
        if start >= len(self.starts) or end >= len(self.starts):
            return None
        if self.starts[start] != where.start or end <= start:
            return None
        return start, end

    def token(self, start: int, end: int) -> Token | None:
        """The one string that makes all of `[start, end)`."""
        for one in self.tokens:
            if one.begin <= start and end <= one.stop:
                return one
        return None


class Uncuttable(ValueError):
    """Why a message's text cannot be edited in place, in words."""
