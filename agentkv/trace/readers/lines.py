"""The JSON values of a log, one after the other, with their lines; damage is counted and stepped over.

Taken as they come, also mixed: JSON lines, JSON that is written over several lines, an array over
several lines, a log's own words in front of the JSON. Never more than one value is held (a file that
is one object, or an array on one line, is one value).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentkv.trace.readers.files import chunks, name_of
from agentkv.trace.readers.problems import Problems

LIMIT = 1 << 28
"""Bytes of the longest value that is read (256 MiB)."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_OPEN = re.compile(r"[\[{]")
_CLOSE = re.compile(r"[\]}]")


def values(path: str | Path, problems: Problems) -> Iterator[tuple[int, Any]]:
    """(line, value) of every JSON value of a log, the line being where the value starts."""
    reader = _Values(name_of(path), problems)
    bad = problems.bad
    for number, line, ended in _lines(path, problems):
        yield from reader.take(number, line, ended)
    yield from reader.end(damaged=problems.bad > bad and reader.bad_file())
    if not reader.seen and problems.bad == bad:
        problems.add("empty log", reader.name, 0, "the log is empty")


def _lines(path: str | Path, problems: Problems) -> Iterator[tuple[int, bytes, bool]]:
    """(number, line, whether it ended with a line break); a line over LIMIT is left out."""
    held: list[bytes] = []
    size, number = 0, 1
    for data in chunks(path, problems):
        *whole, rest = data.split(b"\n")
        for piece in whole:
            if size + len(piece) > LIMIT:
                _too_long(path, number, problems)
            else:
                yield number, b"".join([*held, piece]) if held else piece, True
            held, size = [], 0
            number += 1
        size += len(rest)
        if size > LIMIT:
            held = []  # counted when it ends
        elif rest:
            held.append(rest)
    if size > LIMIT:
        _too_long(path, number, problems)
    elif held:
        yield number, b"".join(held), False


def _too_long(path: str | Path, number: int, problems: Problems) -> None:
    problems.lines += 1
    problems.add("too long", name_of(path), number, f"the line is longer than {LIMIT >> 20} MiB")


class _Values:
    def __init__(self, name: str, problems: Problems) -> None:
        self.name = name
        self.problems = problems
        self.seen = False
        self._held: list[str] = []  # the lines of a value that is not complete
        self._start = 0
        self._depth = 0
        self._indent = ""
        self._size = 0
        self._array = False

    def bad_file(self) -> bool:
        """Whether the last problem is one of the file as a whole: a packed file cut off."""
        first = self.problems.first
        return bool(first) and first[-1].file == self.name and first[-1].line == 0

    def take(self, number: int, raw: bytes, ended: bool) -> Iterator[tuple[int, Any]]:
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if ended or not self._cut_character(error, raw):
                self._bad("encoding", number, f"not UTF-8 (byte {error.start + 1} of the line)")
            else:
                self._bad("cut off", number, "the last line is cut off")
            return
        if self._held:
            if not self._starts_anew(line):
                yield from self._more(line)
                return
            self._give_up("it is not complete: another value starts before its end")
        yield from self._fresh(number, line, ended)

    def _fresh(self, number: int, line: str, ended: bool) -> Iterator[tuple[int, Any]]:
        text = line.strip()
        if self._array:
            if text.startswith("]"):
                self._array = False
                return
            text = text.strip(",").strip()
        if not text or text.startswith("#"):
            return
        try:
            yield number, self._count(json.loads(text))
            return
        except RecursionError as error:
            self._bad("not JSON", number, _reason(error))
            return
        except ValueError as error:
            why = _reason(error)
        if text == "[" or (text.startswith("[{") and _opens(text)):
            self.seen = self._array = True
            text = text[1:].strip()
            if not text:
                return
        if text[0] in "{[" and ended and _opens(text):
            self._held, self._start = [text], number
            self._depth, self._size = _balance(text), len(text)
            self._indent = line[: len(line) - len(line.lstrip())]
            return
        at = text.find('{"')
        if at > 0 and text[0] not in "{[":  # a logger's time and level before the JSON
            try:
                yield number, self._count(json.loads(text[at:]))
                return
            except (ValueError, RecursionError):
                pass
        if not ended and text[0] in "{[":
            self._bad("cut off", number, "the last line is cut off")
        else:
            self._bad("not JSON", number, why)

    def _count(self, value: Any) -> Any:
        self.seen = True
        self.problems.lines += 1
        return value

    def _starts_anew(self, line: str) -> bool:
        return line.startswith(self._indent + "{") and self._depth > 0

    def _more(self, line: str) -> Iterator[tuple[int, Any]]:
        self._held.append(line)
        self._size += len(line)
        self._depth += _balance(line)
        if self._depth > 0:
            if self._size > LIMIT:
                self._give_up(f"it is longer than {LIMIT >> 20} MiB")
            return
        text = "\n".join(self._held).strip()
        self._held = []
        if self._array and text.endswith("]") and self._depth < 0:  # `}]` closes both
            text, self._array = text[:-1], False
        try:
            value = json.loads(text.rstrip().rstrip(","))
        except (ValueError, RecursionError) as error:
            self._bad("not JSON", self._start, _reason(error))
            return
        yield self._start, self._count(value)

    def _give_up(self, why: str) -> None:
        self._bad("not JSON", self._start, why)
        self._held = []

    def end(self, *, damaged: bool) -> Iterator[tuple[int, Any]]:
        """After the last line. `damaged`: the file's own end was already counted."""
        if self._held and not damaged:
            self._bad("cut off", self._start, "the last value is cut off")
        self._held = []
        yield from ()

    @staticmethod
    def _cut_character(error: UnicodeDecodeError, raw: bytes) -> bool:
        return error.end == len(raw)

    def _bad(self, kind: str, number: int, why: str) -> None:
        self.seen = True
        self.problems.lines += 1
        if kind == "cut off" and self.bad_file():
            return  # the cut of the packed file, which is counted
        self.problems.add(kind, self.name, number, why)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        what = error.msg.removesuffix(" at")
        return f"not JSON: {what[:1].lower()}{what[1:]} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"


def _opens(text: str) -> bool:
    """A line after which a value goes on."""
    return text[-1] in "{[," and _balance(text) > 0


def _balance(line: str) -> int:
    """Brackets opened less brackets closed, outside strings."""
    bare = _STRING.sub("", line)
    return len(_OPEN.findall(bare)) - len(_CLOSE.findall(bare))
