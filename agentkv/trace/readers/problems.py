"""What a log did not let us read: counted by kind, the first of them kept with their places."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

KEPT = 20
"""How many problems are kept with file, line and reason; all of them are counted."""


class LogError(Exception):
    """A log that cannot be opened at all; the text is one clear sentence."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that could not be read. `line` is 1-based, and 0 for the file as a whole."""

    file: str
    line: int
    kind: str
    why: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.why}"


@dataclass
class Problems:
    """The account of one reading.

    `counts`: bad lines by kind (`not JSON`, `cut off`, `unknown format`, `reply only`, `odd shape`,
    `encoding`, `too long`, `empty log`, `no call`). `first`: the first 20 of them. `notes`: what was
    read, but is less than the whole truth (a history that only the provider has); no bad lines.
    `skipped`: records that are no model call, by kind (a tool run of LangSmith, a span of a
    database). `formats`: calls by format. `lines`: records seen; `calls`: calls given.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: list[Problem] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    first_notes: list[Problem] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    calls: int = 0

    @property
    def bad(self) -> int:
        """How many lines (or files) could not be read."""
        return self.counts.total()

    def add(self, kind: str, file: str, line: int, why: str) -> None:
        """Count one bad line."""
        self.counts[kind] += 1
        if len(self.first) < KEPT:
            self.first.append(Problem(file, line, kind, why))

    def note(self, kind: str, file: str, line: int, why: str) -> None:
        """Count one line that was read, but does not tell all."""
        self.notes[kind] += 1
        if len(self.first_notes) < KEPT:
            self.first_notes.append(Problem(file, line, kind, why))
