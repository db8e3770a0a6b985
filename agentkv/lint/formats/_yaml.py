"""YAML with the place of every value, and of every character of a scalar, whatever its style.

PyYAML composes the tree and says where each scalar begins. The characters are then read again here,
by the rules of YAML 1.1 as PyYAML applies them, and the two readings are compared: where they
differ a scalar has a value and no place, so that nobody edits it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from agentkv.lint.formats._region import Region
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.source import BOM, Slice

_FOLD = re.compile(r"(?<![ \t])[ \t]*(?:\r\n|\n|\r)[ \t\r\n]*")
_BREAK = re.compile(r"\r\n|\n|\r")
_HEADER = re.compile(r"[|>](?P<mark>[-+0-9]{0,2})[ \t]*(?:#[^\r\n]*)?(?P<end>\r\n|\n|\r|\Z)")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(?P<line>[ \t]*(?:\r\n|\n|\r)[ \t\r\n]*)|(.))",
    re.DOTALL,
)
_SIMPLE = {
    "0": "\0",
    "a": "\x07",
    "b": "\x08",
    "t": "\t",
    "\t": "\t",
    "n": "\n",
    "v": "\x0b",
    "f": "\x0c",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "\\": "\\",
    "/": "/",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
_MOST = 200_000
"""Characters of a YAML file that is read; longer ones are data, not prompts."""


def parse(text: str, start: int = 0, end: int | None = None) -> Node | None:
    """The first document in `text[start:end]`, None when it is empty. Raises TreeError."""
    import yaml

    stop = len(text) if end is None else end
    if text.startswith(BOM, start):
        start += 1
    if stop - start > _MOST:
        raise TreeError(f"longer than {_MOST:,} characters")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text[start:stop], Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = text.count("\n", 0, start) + (mark.line + 1 if mark is not None else 0)
        raise TreeError(
            str(getattr(error, "problem", None) or "not YAML"), line if mark else 0
        ) from None
    except RecursionError:
        raise TreeError("nested too deeply") from None
    if root is None:
        return None
    return _Converter(text, start, stop).node(root)


class _Converter:
    def __init__(self, text: str, start: int, stop: int) -> None:
        self.text, self.start, self.stop = text, start, stop
        self.known: dict[int, Node] = {}

    def node(self, node: Any) -> Node:
        import yaml

        if id(node) in self.known:
            return self.known[id(node)]
        a = self.start + node.start_mark.index
        b = min(max(a, self.start + node.end_mark.index), self.stop)
        out = Node("other", Slice(a, b))
        self.known[id(node)] = out
        if isinstance(node, yaml.ScalarNode):
            out.value = node.value
            if node.tag == "tag:yaml.org,2002:str" or node.tag.startswith("!"):
                out.kind = "text"
                out.locate = self.locator(node.value, a, b, node.style)
        elif isinstance(node, yaml.SequenceNode):
            out.kind = "list"
            out.items = [self.node(n) for n in node.value]
        elif isinstance(node, yaml.MappingNode):
            out.kind = "map"
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    one = self.node(value)
                    k = self.start + key.start_mark.index
                    inside = (
                        one.slice if one.slice.start >= k else Slice(k, k)
                    )  # an alias stands elsewhere
                    out.pairs.append((key.value, one, Slice(k, max(k, inside.end))))
        return out

    def locator(self, value: str, start: int, end: int, style: str | None) -> Callable[[], Region]:
        def locate() -> Region:
            try:
                found = _located(self.text, start, end, self.stop, style)
            except (IndexError, ValueError, OverflowError):
                found = None
            if found is None or found.text != value:
                return Region(value, placed=False)
            return found

        return locate


class _Out:
    """Characters and where each begins."""

    def __init__(self) -> None:
        self.chars: list[str] = []
        self.starts: list[int] = []

    def run(self, text: str, at: int) -> None:
        self.chars.append(text)
        self.starts.extend(range(at, at + len(text)))

    def one(self, text: str, at: int) -> None:
        """`text` made by one stretch of the file that begins at `at`."""
        self.chars.append(text)
        self.starts.extend([at] * len(text))

    def region(self, end: int) -> Region:
        return Region("".join(self.chars), 0, [*self.starts, end])


def _located(text: str, start: int, end: int, stop: int, style: str | None) -> Region | None:
    if style in ("|", ">"):
        return _block(text, start, stop, style)
    if style == "'":
        return _single(text, start + 1, end - 1)
    if style == '"':
        return _double(text, start + 1, end - 1)
    while end > start and text[end - 1] in " \t\r\n":
        end -= 1
    out = _Out()
    _folded(out, text, start, end)
    return out.region(end)


def _folded(out: _Out, text: str, start: int, end: int) -> None:
    """Plain text in flow style: a line break is a space, further ones are themselves."""
    at = start
    for match in _FOLD.finditer(text, start, end):
        out.run(text[at : match.start()], at)
        _fold(out, match.group(), match.start())
        at = match.end()
    out.run(text[at:end], at)


def _fold(out: _Out, gap: str, at: int) -> None:
    breaks = len(_BREAK.findall(gap))
    out.one(" " if breaks == 1 else "\n" * (breaks - 1), at)


def _single(text: str, start: int, end: int) -> Region:
    out = _Out()
    at = start
    for match in re.finditer(r"''|" + _FOLD.pattern, text[start:end]):
        here = start + match.start()
        out.run(text[at:here], at)
        if match.group() == "''":
            out.one("'", here)
        else:
            _fold(out, match.group(), here)
        at = start + match.end()
    out.run(text[at:end], at)
    return out.region(end)


def _double(text: str, start: int, end: int) -> Region:
    out = _Out()
    at = start
    while at < end:
        gap = _FOLD.match(text, at, end)
        if gap is not None:
            _fold(out, gap.group(), at)
            at = gap.end()
        elif text[at] == "\\":
            match = _ESCAPE.match(text, at, end)
            if match is None:
                raise ValueError("a backslash at the end")
            if match["line"] is not None:
                breaks = len(_BREAK.findall(match["line"]))
                out.one("\n" * (breaks - 1), at)
            elif match[5] is not None:
                out.one(_SIMPLE.get(match[5], ""), at)
            else:
                out.one(chr(int(match[1] or match[2] or match[3], 16)), at)
            at = match.end()
        else:
            out.run(text[at], at)
            at += 1
    return out.region(end)


def _block(text: str, start: int, stop: int, style: str) -> Region | None:
    header = _HEADER.match(text, start, stop)
    if header is None:
        return None
    keep = "+" in header["mark"]
    strip = "-" in header["mark"]
    digits = re.sub(r"\D", "", header["mark"])
    lines = _lines(text, header.end(), stop)
    indent = _indent(text, start, lines, int(digits) if digits else None)
    out = _Out()
    # Breaks behind the last line of text that was seen: where each stands.
    breaks: list[int] = []
    last: int | None = None
    first_space = False
    end = header.end()
    for a, b, c in lines:
        line = text[a:b]
        own = len(line) - len(line.lstrip(" "))
        if (not line.strip(" ") and own <= indent) or own > len(line):
            if b == c:
                break
            breaks.append(b)
            if keep or last is None:
                end = c
            continue
        if own < indent or (indent == 0 and re.match(r"(?:---|\.\.\.)(?:\s|\Z)", line)):
            break
        space = line[indent : indent + 1] in (" ", "\t")
        if last is not None:
            if style == ">" and not first_space and not space:
                if not breaks:
                    out.one(" ", last)
            else:
                out.one("\n", last)
        for n, at in enumerate(breaks):
            out.one(
                "\n",
                last
                if n == 0 and last is not None and style == ">" and not first_space and not space
                else at,
            )
        breaks = []
        out.run(line[indent:], a + indent)
        last = b if b < c else None
        first_space = space
        end = c if b < c else b
        if last is None:
            break
    if not strip and last is not None:
        out.one("\n", last)
    elif strip and last is not None:
        end = last
    if keep:
        for at in breaks:
            out.one("\n", at)
    starts = out.starts
    if any(x > y for x, y in pairwise(starts)):
        return None
    return out.region(max(end, starts[-1] if starts else end))


def _lines(text: str, at: int, stop: int) -> list[tuple[int, int, int]]:
    """`(start, end, end with its break)` of each line."""
    out = []
    while at < stop:
        found = _BREAK.search(text, at, stop)
        if found is None:
            out.append((at, stop, stop))
            break
        out.append((at, found.start(), found.end()))
        at = found.end()
    return out


def _indent(text: str, start: int, lines: list[tuple[int, int, int]], given: int | None) -> int:
    first = next((text[a:b] for a, b, _ in lines if text[a:b].strip(" ")), "")
    own = len(first) - len(first.lstrip(" "))
    if given is None:
        return own
    # The parent's indentation: that of the line in which the scalar is announced, list dashes and
    # all; the reading is compared with PyYAML's, so a wrong guess is found out.
    line = text.rfind("\n", 0, start) + 1
    head = text[line:start]
    base = len(head) - len(head.lstrip(" "))
    dash = re.match(r"\s*(?:-\s+)+(?=\S+\s*:)", head)
    if dash:
        base = dash.end()
    return min(own, base + given)
