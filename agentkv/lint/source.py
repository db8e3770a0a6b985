"""One file as it lies on disk: its text, its lines, and edits that leave every other byte alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

BOM = "\ufeff"


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """Characters `[start, end)` of a source's text."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a slice: {self.start}..{self.end}")

    def __len__(self) -> int:
        return self.end - self.start

    def within(self, other: Slice) -> bool:
        return other.start <= self.start and self.end <= other.end


@dataclass(frozen=True, slots=True)
class Position:
    """1-based line and column (in characters), as editors count."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters of `slice` by `text`. An empty slice inserts."""

    slice: Slice
    text: str


class SourceError(ValueError):
    """The file cannot be read as text; the message says why."""


@dataclass(frozen=True)
class Source:
    """A file's text, newlines untouched. `path` is how the user named it ("-" for stdin)."""

    path: str
    text: str

    @classmethod
    def read(cls, path: Path, *, name: str | None = None, most_bytes: int = 4 << 20) -> Source:
        """Raises `SourceError` for binary files, other encodings than UTF-8, and very large files."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror or error}") from error
        return cls.decode(data, name or str(path), most_bytes=most_bytes)

    @classmethod
    def decode(cls, data: bytes, path: str, *, most_bytes: int = 4 << 20) -> Source:
        """The source in `data`. A byte order mark stays in the text, since it is sent too."""
        if len(data) > most_bytes:
            raise SourceError(f"larger than {most_bytes >> 20} MiB")
        if b"\0" in data[:8192]:
            raise SourceError("a binary file")
        try:
            return cls(path, data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"not UTF-8 at byte {error.start}") from error

    @cached_property
    def digest(self) -> str:
        """A hash of the content, for caches and baselines."""
        return blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def position(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def offset(self, line: int, column: int) -> int:
        """The inverse of `position`, clamped to the text."""
        line = min(max(line, 1), len(self._starts))
        return min(self._starts[line - 1] + max(column, 1) - 1, len(self.text))

    def line_text(self, line: int) -> str:
        """One line without its newline."""
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    @property
    def lines(self) -> int:
        return len(self._starts)

    def __getitem__(self, where: Slice) -> str:
        return self.text[where.start : where.end]

    def apply(self, edits: Iterable[Edit]) -> Source:
        """The source with `edits` made. Outside their slices every character stays.

        Raises ValueError when two edits overlap (two insertions at one place keep their order).
        """
        out: list[str] = []
        at = 0
        for edit in sorted(edits, key=lambda e: (e.slice.start, e.slice.end)):
            if edit.slice.start < at:
                raise ValueError(f"two edits overlap at offset {edit.slice.start} of {self.path}")
            out += [self.text[at : edit.slice.start], edit.text]
            at = edit.slice.end
        out.append(self.text[at:])
        return Source(self.path, "".join(out))
