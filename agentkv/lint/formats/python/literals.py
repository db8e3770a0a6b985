"""String literals, character by character: what each character of a value is in the source.

The standard library's tree gives no positions inside a string (and rough ones inside an f-string
before Python 3.12), so literals are scanned here. `scan` is checked against the value that the tree
has: where the two differ, nobody gets a position at all, rather than a wrong one.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

_PREFIX = re.compile(r"([A-Za-z]{0,3})('''|\"\"\"|'|\")")
_GAP = re.compile(r"(?:[ \t\f\r\n]|\\\r?\n|#[^\r\n]*)*")
_PLAIN = re.compile(r"[^\\\r{}]+")
_SIMPLE = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_HEX = {"x": 2, "u": 4, "U": 8}


class Unreadable(ValueError):
    """A literal that the scanner does not understand; its positions are not known."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Literal text of one literal. `runs` maps: from `runs[k][0]` in the value on, characters stand
    at `runs[k][1]` in the source, one for one if `runs[k][2]`, else all of them are one unit."""

    value: str
    start: int
    end: int
    runs: tuple[tuple[int, int, bool], ...]

    def offset(self, index: int) -> int:
        """Where the character `index` of the value begins; `end` behind the last."""
        if index >= len(self.value):
            return self.end
        at = bisect_right(self.runs, index, key=lambda r: r[0]) - 1
        first, source, linear = self.runs[at]
        return source + (index - first if linear else 0)


@dataclass(frozen=True, slots=True)
class Field:
    """A replacement field of an f-string: all of it, and the expression in it. `debug` for `{x=}`."""

    start: int
    end: int
    inner: tuple[int, int]
    debug: bool = False


Scanned = Chunk | Field


@dataclass(frozen=True, slots=True)
class Literal:
    """One string token: its whole range and how it is written."""

    start: int
    end: int
    prefix: str
    quote: str
    parts: tuple[Scanned, ...]

    @property
    def body(self) -> tuple[int, int]:
        return (self.start + len(self.prefix) + len(self.quote), self.end - len(self.quote))


def scan(text: str, start: int, end: int) -> list[Literal]:
    """The literals in `[start, end)`, which hold one string, implicitly concatenated or not.

    Raises `Unreadable` when there is anything else than literals, blanks and comments.
    """
    found: list[Literal] = []
    at = start
    while at < end:
        literal = _one(text, at)
        found.append(literal)
        gap = _GAP.match(text, literal.end)
        at = gap.end() if gap else literal.end
    if not found or found[-1].end != end:
        raise Unreadable
    return found


def _one(text: str, at: int) -> Literal:
    head = _PREFIX.match(text, at)
    if head is None:
        raise Unreadable
    prefix, quote = head[1].lower(), head[2]
    if "b" in prefix:
        raise Unreadable
    if "f" in prefix or "t" in prefix:
        parts, stop = _formatted(text, head.end(), quote, raw="r" in prefix)
    else:
        stop = _close(text, head.end(), quote)
        parts = [_chunk(text, head.end(), stop, raw="r" in prefix)] if stop > head.end() else []
    return Literal(at, stop + len(quote), head[1], quote, tuple(parts))


def _close(text: str, at: int, quote: str) -> int:
    """Offset of the closing quote."""
    while True:
        stop = text.find(quote, at)
        if stop < 0:
            raise Unreadable
        slash = text.find("\\", at, stop)
        if slash < 0:
            return stop
        at = slash + 2


def _chunk(text: str, start: int, end: int, *, raw: bool, braces: bool = False) -> Chunk:
    """The text between two offsets, decoded. `braces`: `{{` and `}}` are one character."""
    out: list[str] = []
    runs: list[tuple[int, int, bool]] = []
    size, at, linear = 0, start, False

    def put(value: str, source: int, one_for_one: bool) -> None:
        nonlocal size, linear
        if not (one_for_one and linear):
            runs.append((size, source, one_for_one))
        out.append(value)
        size += len(value)
        linear = one_for_one

    while at < end:
        plain = _PLAIN.match(text, at, end)
        if plain:
            put(plain[0], at, True)
            at = plain.end()
            continue
        mark = text[at]
        if mark == "\r":
            width = 2 if text.startswith("\r\n", at) else 1
            put("\n", at, False)
        elif mark in "{}":
            width = 2 if braces else 1
            put(mark, at, not braces)
        elif raw:
            width = 1
            put("\\", at, True)
        else:
            value, width = _escape(text, at, end)
            if value:
                put(value, at, False)
            else:
                linear = False
        at += width
    return Chunk("".join(out), start, end, tuple(runs))


def _escape(text: str, at: int, end: int) -> tuple[str, int]:
    """The value of the escape at `at`, and its width in the source."""
    mark = text[at + 1] if at + 1 < end else ""
    if mark in _SIMPLE:
        return _SIMPLE[mark], 2
    if mark == "\n":
        return "", 2
    if mark == "\r":
        return "", 3 if text.startswith("\r\n", at + 1) else 2
    if mark in _HEX:
        width = 2 + _HEX[mark]
        return chr(int(text[at + 2 : at + width], 16)), width
    if mark == "N":
        stop = text.index("}", at)
        return unicodedata.lookup(text[at + 3 : stop]), stop + 1 - at
    octal = re.compile(r"[0-7]{1,3}").match(text, at + 1, end)
    if octal:
        return chr(int(octal[0], 8)), octal.end() - at
    return "\\", 1


def _formatted(text: str, at: int, quote: str, *, raw: bool) -> tuple[list[Scanned], int]:
    """Parts of an f-string's body from `at`, and the offset of its closing quote."""
    parts: list[Scanned] = []
    begin = at
    while True:
        if at >= len(text):
            raise Unreadable
        if text.startswith(quote, at):
            if at > begin:
                parts.append(_chunk(text, begin, at, raw=raw, braces=True))
            return parts, at
        mark = text[at]
        if mark == "\\" and not raw and text.startswith("N{", at + 1):
            at = text.index("}", at) + 1
        elif mark == "\\":
            # In an f-string a backslash never hides a brace.
            at += 1 if text[at + 1 : at + 2] in "{}" else 2
        elif mark in "{}" and text.startswith(mark, at + 1):
            at += 2
        elif mark == "{":
            if at > begin:
                parts.append(_chunk(text, begin, at, raw=raw, braces=True))
            field = _field(text, at, quote)
            parts.append(field)
            at = begin = field.end
        elif mark == "}":
            raise Unreadable
        else:
            at += 1


def _field(text: str, at: int, quote: str) -> Field:
    """The replacement field that opens at `at`."""
    start, depth, debug = at, 0, False
    at += 1
    begin, stop = at, -1
    while True:
        mark = text[at : at + 1]
        if not mark:
            raise Unreadable
        if mark in "'\"":
            at = _nested(text, at)
            continue
        if mark == "#":
            line = re.compile(r"[^\r\n]*").match(text, at)
            at = line.end() if line else at + 1
            continue
        if mark in "([{":
            depth += 1
        elif depth and mark in ")]}":
            depth -= 1
        elif not depth:
            if mark == "}":
                return Field(start, at + 1, (begin, stop if stop >= 0 else at), debug)
            if mark == "!" and text[at + 1 : at + 2] != "=":
                stop = at if stop < 0 else stop
            elif mark == ":":
                stop = at if stop < 0 else stop
                return Field(start, _spec(text, at + 1, quote), (begin, stop), debug)
            elif (
                mark == "="
                and text[at + 1 : at + 2] != "="
                and text[at - 1] not in "=!<>:"
                and re.compile(r"\s*[}!:]").match(text, at + 1)
            ):
                debug, stop = True, at
        at += 1


def _spec(text: str, at: int, quote: str) -> int:
    """The offset behind the brace that ends a format specification."""
    while True:
        mark = text[at : at + 1]
        if not mark:
            raise Unreadable
        if mark == "{":
            at = _field(text, at, quote).end
        elif mark == "}":
            return at + 1
        else:
            at += 1


def _nested(text: str, at: int) -> int:
    """The offset behind a string inside an expression."""
    begin = at
    while begin > 0 and text[begin - 1].isalpha() and at - begin < 3:
        begin -= 1
    for first in range(begin, at + 1):
        head = _PREFIX.match(text, first)
        if head and head.end() - len(head[2]) == at and _known(head[1]):
            if "f" in head[1].lower():
                return _formatted(text, head.end(), head[2], raw="r" in head[1].lower())[1] + len(
                    head[2]
                )
            return _close(text, head.end(), head[2]) + len(head[2])
    raise Unreadable


def _known(prefix: str) -> bool:
    return prefix.lower() in {"", "r", "u", "b", "f", "t", "rb", "br", "rf", "fr", "rt", "tr"}


def chunks(literals: list[Literal]) -> Iterator[Scanned]:
    for literal in literals:
        yield from literal.parts
