"""JSON with the place of every value, and of every character of a string."""

from __future__ import annotations

import re
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]

from agentkv.lint.formats._region import Region
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.source import BOM, Slice

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|NaN|-?Infinity")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_DEPTH = 200


def parse(text: str, start: int = 0, end: int | None = None) -> Node:
    """The one value in `text[start:end]`. Raises TreeError."""
    stop = len(text) if end is None else end
    if text.startswith(BOM, start):
        start += 1
    reader = _Reader(text, stop)
    node, at = reader.value(reader.space(start), 0)
    if reader.space(at) < stop:
        raise reader.error("more text behind the value", at)
    return node


def values(text: str, most: int) -> list[Node]:
    """The first values of a JSON Lines text. Raises TreeError where the first is none."""
    found: list[Node] = []
    at = 1 if text.startswith(BOM) else 0
    while at < len(text) and len(found) < most:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if text[at:end].strip():
            try:
                found.append(parse(text, at, end))
            except TreeError:
                if not found:
                    raise
                break
        at = end + 1
    return found


class _Reader:
    def __init__(self, text: str, end: int) -> None:
        self.text, self.end = text, end

    def error(self, message: str, at: int) -> TreeError:
        return TreeError(message, self.text.count("\n", 0, at) + 1)

    def space(self, at: int) -> int:
        found = _SPACE.match(self.text, at, self.end)
        return found.end() if found else at

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        if at >= self.end:
            raise self.error("the text ends too early", at)
        char = self.text[at]
        if char == '"':
            return self.string(at)
        if char in "{[":
            if depth > _DEPTH:
                raise self.error(f"nested more than {_DEPTH} deep", at)
            return self.map(at, depth) if char == "{" else self.list(at, depth)
        found = _SCALAR.match(self.text, at, self.end)
        if found is None:
            raise self.error(f"unexpected {char!r}", at)
        return Node("other", Slice(at, found.end()), found.group()), found.end()

    def string(self, at: int) -> tuple[Node, int]:
        try:
            value, end = scanstring(self.text, at + 1, False)
        except JSONDecodeError as error:
            raise self.error(error.msg, error.pos) from None
        if end > self.end:
            raise self.error("a string without its end", at)
        inner = self.text[at + 1 : end - 1]
        return Node(
            "text", Slice(at, end), value, locate=lambda: _region(value, inner, at + 1)
        ), end

    def map(self, at: int, depth: int) -> tuple[Node, int]:
        node = Node("map", Slice(at, at))
        here = self.space(at + 1)
        while self.text[here : here + 1] != "}" or node.pairs:
            if self.text[here : here + 1] != '"':
                raise self.error("a key was expected", here)
            key, end = self.string(here)
            colon = self.space(end)
            if self.text[colon : colon + 1] != ":":
                raise self.error("`:` was expected", colon)
            value, end = self.value(self.space(colon + 1), depth + 1)
            node.pairs.append((key.value, value, Slice(here, end)))
            here = self.space(end)
            if self.text[here : here + 1] == "}":
                break
            if self.text[here : here + 1] != ",":
                raise self.error("`,` or `}` was expected", here)
            here = self.space(here + 1)
        node.slice = Slice(at, here + 1)
        return node, here + 1

    def list(self, at: int, depth: int) -> tuple[Node, int]:
        node = Node("list", Slice(at, at))
        here = self.space(at + 1)
        while self.text[here : here + 1] != "]" or node.items:
            value, end = self.value(here, depth + 1)
            node.items.append(value)
            here = self.space(end)
            if self.text[here : here + 1] == "]":
                break
            if self.text[here : here + 1] != ",":
                raise self.error("`,` or `]` was expected", here)
            here = self.space(here + 1)
        node.slice = Slice(at, here + 1)
        return node, here + 1


def _region(value: str, raw: str, base: int) -> Region:
    if "\\" not in raw:
        return Region(value, base)
    starts: list[int] = []
    at = 0
    for match in _ESCAPE.finditer(raw):
        starts.extend(range(base + at, base + match.start() + 1))
        at = match.end()
    starts.extend(range(base + at, base + len(raw) + 1))
    if len(starts) != len(value) + 1:
        return Region(value, placed=False)
    return Region(value, 0, starts)
