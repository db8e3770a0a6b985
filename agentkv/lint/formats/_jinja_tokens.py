"""The tokens of Jinja (and Nunjucks) with exact offsets.

Jinja's own lexer turns CR LF into LF and drops what whitespace control removes, so its tokens have
no places; a test compares the two. Only delimiters are told apart here; what stands between them is
read by `_expression`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_OPEN = re.compile(r"\{\{|\{%|\{#")
_INSIDE = re.compile(r"""["'{}()\[\]]|%\}""")
_STRING = {
    '"': re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL),
    "'": re.compile(r"'(?:\\.|[^'\\])*'", re.DOTALL),
}
_RAW = re.compile(r"\s*(raw|verbatim)\s*\Z")


class TemplateError(ValueError):
    """The text is no template of this syntax; `offset` is where that shows."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Token:
    """`[start, end)` of the text. `body` is what stands between the delimiters, of a `raw` block
    what stands between its tags. For `text`, `[start, end)` is what is left of it when whitespace
    control was applied."""

    kind: Literal["text", "var", "tag", "comment", "raw"]
    start: int
    end: int
    body: str


@dataclass(frozen=True, slots=True)
class _Tag:
    kind: Literal["var", "tag", "comment", "raw"]
    start: int
    end: int
    body: str
    left: str
    right: str


def tokens(text: str, *, trim: bool = False) -> Iterator[Token]:
    """`trim`: the environment has `trim_blocks` and `lstrip_blocks`, as for chat templates.

    Raises TemplateError where a delimiter has no end.
    """
    at, strip = 0, ""
    for tag in _tags(text):
        yield from _text(text, at, tag.start, strip, tag.left, trim and tag.kind != "var")
        yield Token(tag.kind, tag.start, tag.end, tag.body)
        at = tag.end
        strip = tag.right or ("\n" if trim and tag.kind != "var" else "")
    yield from _text(text, at, len(text), strip, "", False)


def _text(
    text: str, start: int, end: int, before: str, after: str, lstrip: bool
) -> Iterator[Token]:
    if before == "-":
        while start < end and text[start].isspace():
            start += 1
    elif before == "\n":
        if text.startswith("\r\n", start):
            start = min(start + 2, end)
        elif text.startswith("\n", start):
            start = min(start + 1, end)
    if after == "-":
        while end > start and text[end - 1].isspace():
            end -= 1
    elif lstrip and after != "+":
        line = end
        while line > start and text[line - 1] in " \t":
            line -= 1
        if line == 0 or text[line - 1] == "\n":
            end = line
    if start < end:
        yield Token("text", start, end, text[start:end])


def _tags(text: str) -> Iterator[_Tag]:
    at = 0
    while (found := _OPEN.search(text, at)) is not None:
        start, opener = found.start(), found.group()
        left = text[start + 2 : start + 3]
        left = left if left in ("-", "+") else ""
        inner = start + 2 + len(left)
        if opener == "{#":
            close = text.find("#}", inner)
            if close < 0:
                raise TemplateError("a comment `{#` without its `#}`", start)
            end = close + 2
        else:
            close, end = _close(text, inner, "}}" if opener == "{{" else "%}", start)
        right = text[close - 1 : close] if close > inner and text[close - 1] in "-+" else ""
        body = text[inner : close - len(right)]
        raw = _RAW.match(body) if opener == "{%" else None
        if raw is not None:
            tag = _raw(text, start, end, left, right, raw[1])
        else:
            kinds: dict[str, Literal["var", "tag", "comment"]] = {
                "{{": "var",
                "{%": "tag",
                "{#": "comment",
            }
            tag = _Tag(kinds[opener], start, end, body, left, right)
        yield tag
        at = tag.end


def _close(text: str, at: int, closer: str, start: int) -> tuple[int, int]:
    depth = 0
    while (found := _INSIDE.search(text, at)) is not None:
        char = found.group()
        if char in _STRING:
            string = _STRING[char].match(text, found.start())
            if string is None:
                break
            at = string.end()
            continue
        if depth == 0 and text.startswith(closer, found.start()):
            return found.start(), found.start() + 2
        if char in "{([":
            depth += 1
        elif char in "})]":
            depth -= 1
            if depth < 0:
                break
        at = found.start() + 1
    what = "{{" if closer == "}}" else "{%"
    raise TemplateError(f"`{what}` without its `{closer}`", start)


def _raw(text: str, start: int, end: int, left: str, right: str, word: str) -> _Tag:
    closing = re.compile(r"\{%(?P<l>[-+]?)\s*end" + word + r"\s*(?P<r>[-+]?)%\}")
    found = closing.search(text, end)
    if found is None:
        raise TemplateError(f"`{{% {word} %}}` without its end", start)
    body = text[end : found.start()]
    if right == "-":
        body = body.lstrip()
    if found["l"] == "-":
        body = body.rstrip()
    return _Tag("raw", start, found.end(), body, left, found["r"])
