"""The beginning of a call, matched against text that may not be all there yet."""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

from agentkv.engine.text.canonical import MAX_TOOL_NAME

_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_OPEN_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*\\?')


class Head(NamedTuple):
    """A call's name, and where its arguments begin."""

    name: str
    end: int


Partial = Literal["partial"]


def literal(buffer: str, at: int, text: str) -> int | Partial | None:
    """Match `text` at `at`: where it ends, `partial` when more must come, None when it is not
    there. White space in either place may be any white space, or none."""
    for piece in text.split():
        at = _skip(buffer, at)
        if not buffer.startswith(piece, at):
            rest = buffer[at:]
            return "partial" if piece.startswith(rest) else None
        at += len(piece)
    return at


def head(buffer: str, at: int, before: str, middle: str, *, quoted: bool) -> Head | Partial | None:
    """Match `before`, a name, `middle` and the brace that opens the arguments."""
    found = literal(buffer, at, before)
    if found is None or found == "partial":
        return found
    at = _skip(buffer, found)
    if at == len(buffer):
        return "partial"
    if quoted:
        string = _STRING.match(buffer, at)
        if string is None:
            return "partial" if _OPEN_STRING.fullmatch(buffer, at) else None
        try:
            name = json.loads(string.group())
        except ValueError:
            return None
        at = string.end()
    else:
        end = buffer.find(middle, at)
        name = buffer[at : end if end >= 0 else len(buffer)]
        if len(name) > MAX_TOOL_NAME or "\n" in name:
            return None
        if end < 0:
            return "partial"
        at = end
    found = literal(buffer, at, middle)
    if found is None or found == "partial":
        return found
    at = _skip(buffer, found)
    if at == len(buffer):
        return "partial"
    return Head(name, at) if buffer[at] == "{" else None


def _skip(buffer: str, at: int) -> int:
    while at < len(buffer) and buffer[at].isspace():
        at += 1
    return at
