"""Texts that hold together by form: lists, tables, fences, tags and headings are never cut."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentkv.prompt.segment import Segment

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]*)(?:\s[^<>]*)?(/?)>")
_BLOCK = re.compile(r"\{%-?\s*(end)?(if|for|macro|block|filter|call|raw)\b|\{\{([#/])(\w+)")
_NUMBERED = re.compile(
    r"^\s*(?:#+\s*)?(?:\*\*)?\(?(?:(\d{1,3})[.):、．](?!\d)|(\d{1,3})(?:\.\d{1,2})+(?![\d.:])|([a-hA-H])[.)]\s|([ivxIVX]{1,4})[.)]\s|"
    r"(?:step|schritt|étape|paso)\s+(\d+)\b|第([一二三四五六七八九十\d]+)[章节節步条條点])",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*[-*+•‣·]\s+\S")
_ROW = re.compile(r"^\s*\|.*\|\s*$")
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s+\S.*|\*\*[^*]+\*\*|__[^_]+__|\[[A-Z][\w ]*\]|<[A-Za-z_][\w.:-]*>)\s*$"
)


def bound(units: Sequence[Segment], index: int) -> str | None:
    """Why `units[index]` is part of a larger form in its message; None if it stands by itself."""
    unit = units[index]
    before = "".join(u.content for u in units[:index])
    after = "".join(u.content for u in units[index + 1 :])
    if len(_FENCE.findall(before)) % 2:
        return "it stands inside a code fence."
    if len(_FENCE.findall(unit.content)) % 2:
        return "a code fence begins or ends in it."
    for opened, here in ((_open(before), after), (_open(unit.content), after)):
        for name in opened:
            if _closes(here, name):
                return f"it stands inside <{name}>, or opens it for what follows."
    for name in _stray(unit.content):
        if _opens(before, name):
            return f"it closes the <{name}> that text ahead of it opens."
    if _depth(before) or _depth(unit.content):
        return "it stands inside a template block."
    return _neighbours(_last(before), unit.content, _first(after), following=after)


def heads(text: str) -> str | None:
    """What the last line of `text` is, if it is a heading of what comes next; else None."""
    line = _last(text)
    if _HEADING.match(line) and not (line.startswith("[") and text.strip() == line.strip()):
        return line.strip()
    return None


def _neighbours(ahead: str, text: str, behind: str, *, following: str) -> str | None:
    """Ordered and unordered lists and tables that go on from one unit into another."""
    first, last = _first(text), _last(text)
    number = _number(first)
    if number is not None and number > 1:
        return f"it is number {number} of a list."
    next_number = _number(behind)
    if next_number is not None and next_number > 1 and _items(text):
        return f"number {next_number} of a list follows it."
    if number is not None and (_number(ahead) is not None or next_number is not None):
        return "it is an item of an ordered list."
    for one, other in ((ahead, first), (last, behind)):
        if _ROW.match(one) and _ROW.match(other):
            return "it is a row of a table."
        if _BULLET.match(one) and _BULLET.match(other):
            return "it is an item of a list."
    if next_number is not None and next_number > 1:
        return f"it stands in a list: number {next_number} follows it."
    return None


def _items(text: str) -> bool:
    return any(_NUMBERED.match(line) for line in text.splitlines())


def _number(line: str) -> int | None:
    found = _NUMBERED.match(line)
    if not found:
        return None
    digits, dotted, letter, roman, step, chinese = found.groups()
    if digits or dotted or step:
        return int(digits or dotted or step)
    if roman and roman.lower() != "i":
        return 2
    if letter:
        return ord(letter.lower()) - ord("a") + 1
    if chinese:
        return int(chinese) if chinese.isdigit() else "一二三四五六七八九十".index(chinese[0]) + 1
    return 1


def _first(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def _last(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _open(text: str) -> list[str]:
    """Names of the tags that `text` opens and does not close."""
    stack: list[str] = []
    for close, name, alone in _TAG.findall(text):
        if alone:
            continue
        if not close:
            stack.append(name)
        elif name in stack:
            del stack[len(stack) - 1 - stack[::-1].index(name) :]
    return stack


def _stray(text: str) -> list[str]:
    """Names of the tags that `text` closes and did not open."""
    depth: dict[str, int] = {}
    stray: list[str] = []
    for close, name, alone in _TAG.findall(text):
        if alone:
            continue
        depth[name] = depth.get(name, 0) + (-1 if close else 1)
        if depth[name] < 0:
            stray.append(name)
            depth[name] = 0
    return stray


def _closes(text: str, name: str) -> bool:
    return f"</{name}" in text and name in _stray(text)


def _opens(text: str, name: str) -> bool:
    return f"<{name}" in text and name in _open(text)


def _depth(text: str) -> int:
    """How many template blocks `text` leaves open."""
    depth = 0
    for end, word, mark, _name in _BLOCK.findall(text):
        if word:
            depth += -1 if end else 1
        else:
            depth += -1 if mark == "/" else 1
    return depth
