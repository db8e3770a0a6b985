"""Whose message a text is: by a file's name, by role lines, by `<message role="...">`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from agentkv.lint.formats._jinja import role_of
from agentkv.lint.formats._messages import Item, Message, span
from agentkv.lint.formats._region import Region
from agentkv.lint.source import Slice
from agentkv.lint.template import Hole, Piece, Role, Text

_SYSTEM = re.compile(
    r"(?:^|[_\-. ])(?:sys|system|developer|instructions?|persona)(?:[_\-. ]|prompt|$)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?:^|[_\-. ])(?:user|human|question|query)(?:[_\-. ]|$)", re.IGNORECASE)

LINE = re.compile(
    r"^[ \t]{0,8}#?[ \t]{0,8}(?P<role>system|user|assistant|developer|function|tool|human)[ \t]{0,8}(?:\[[^\]\r\n]*\])?[ \t]{0,8}:[ \t]*(?:\r?\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
OPEN = re.compile(
    r"<message\s+role\s*=\s*[\"'](?P<role>[^\"']*)[\"'][^>]*>(?:[ \t]*\r?\n)?", re.IGNORECASE
)
CLOSE = re.compile(r"</message\s*>", re.IGNORECASE)


def template_role(path: str, text: str) -> Role:
    """`system_prompt.j2` is a system message, `user_prompt.j2` a user's; others are unknown."""
    name = PurePath(path).name
    if _SYSTEM.search(name):
        return "system"
    if _USER.search(name):
        return "user"
    return "unknown"


def by_lines(region: Region, items: Iterable[Item]) -> list[Item]:
    """Items split into messages at lines that say `system:`. A loop over the history whose body
    writes such lines is a run of messages from outside."""
    out: list[Item] = []
    current: Message | None = None
    for item in items:
        if isinstance(item, Hole) and _is_thread(item):
            out.append(Message("unknown", [item], item.slice, True))
            current = None
            continue
        bounds, marks = _marks(region, item, LINE)
        if not marks:
            current = _add(out, current, item)
            continue
        at, end = bounds
        for match in marks:
            if at < match.start():
                current = _add(out, current, region.piece(at, match.start()))
            current = Message(role_of(match["role"]), [], region.slice(match.start(), match.end()))
            out.append(current)
            at = match.end()
        if at < end:
            current = _add(out, current, region.piece(at, end))
    return [_closed(i) for i in out]


def by_tags(region: Region, items: Iterable[Item]) -> list[Item]:
    """Items split at `<message role="...">` tags. What stands outside is loose, but for a history."""
    before = list(items)
    if not any(_marks(region, i, OPEN)[1] for i in before):
        return before
    out: list[Item] = []
    current: Message | None = None
    for item in before:
        bounds, marks = _marks(region, item, OPEN, CLOSE)
        if not marks:
            if isinstance(item, Message):
                out.append(item)
            elif current is not None:
                current.pieces.append(item)
            elif isinstance(item, Hole) and ("history" in item.traits or _is_thread(item)):
                out.append(Message("unknown", [item], item.slice, True))
            elif isinstance(item, Hole) or item.value.strip():
                out.append(item)
            continue
        at, end = bounds
        for match in [*marks, None]:
            stop = match.start() if match is not None else end
            if at < stop:
                piece = region.piece(at, stop)
                if current is not None:
                    current.pieces.append(piece)
                elif piece.value.strip():
                    out.append(piece)
            if match is None:
                break
            at = match.end()
            place = region.slice(match.start(), match.end())
            if match.re is OPEN:
                current = Message(role_of(match["role"]), [], place)
                out.append(current)
            elif current is not None:
                if current.slice is not None and place is not None:
                    current.slice = Slice(current.slice.start, place.end)
                current = None
    return out


def _marks(
    region: Region, item: Item, *patterns: re.Pattern[str]
) -> tuple[tuple[int, int], list[re.Match[str]]]:
    """Marks in a text that stands in its region as it is rendered, and the text's bounds there."""
    if not isinstance(item, Text) or item.slice is None:
        return (0, 0), []
    start, end = region.offset(item.slice.start), region.offset(item.slice.end)
    if region.text[start:end] != item.value:
        return (0, 0), []
    found = [m for p in patterns for m in p.finditer(region.text, start, end)]
    found = [
        m for m in found if m.re is not LINE or m.start() == 0 or region.text[m.start() - 1] == "\n"
    ]
    return (start, end), sorted(found, key=lambda m: m.start())


def _add(out: list[Item], current: Message | None, item: Item) -> Message | None:
    if isinstance(item, Message):
        out.append(item)
        return None
    if current is None:
        behind = any(isinstance(i, Message) for i in out)
        if behind and isinstance(item, Text) and not item.value.strip():
            return None
        if behind:
            current = Message("unknown", [item])
            out.append(current)
            return current
        out.append(item)
        return None
    current.pieces.append(item)
    return current


def _closed(item: Item) -> Item:
    if isinstance(item, Message) and not item.placeholder:
        inside = span(item.pieces)
        if inside is not None:
            start = min(item.slice.start, inside.start) if item.slice else inside.start
            item.slice = Slice(start, max(inside.end, item.slice.end if item.slice else 0))
    return item


def _is_thread(hole: Hole) -> bool:
    """A loop that writes a role line from a variable for each message."""
    if "loop" not in hole.traits:
        return False
    return "history" in hole.traits or any(
        isinstance(p, Hole) and p.name.rpartition(".")[2] == "role" for p in _deep(hole.inner)
    )


def _deep(pieces: Iterable[Piece]) -> Iterable[Piece]:
    for piece in pieces:
        yield piece
        if isinstance(piece, Hole):
            yield from _deep(piece.inner)
