"""The text of a template's system message in passages: what is fixed, and what a variable makes.

Only whole lines are told apart: a line with a variable, with the label or the tags around it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from string import Formatter
from typing import Any

from agentkv.layout.arrangement import Refusal
from agentkv.layout.names import level_of
from agentkv.layout.points import closing
from agentkv.layout.system import LASTING
from agentkv.prompt.segment import STABILITIES, Segment, stability_rank

_DEPLOYED = stability_rank("deploy")
_MAX_WORDS = 12
_SENTENCE_END = re.compile(r"(?<!\d)[.!?。！？](?=\s+\S)")
_TAG_LINE = re.compile(r"^\s*<(/?)([A-Za-z_][\w.:-]*)>\s*$")


def fields(text: str) -> list[str]:
    """Names of the variables in an f-string, in order. (Core allows no attributes or indices.)"""
    return [field for _, field, _, _ in Formatter().parse(text) if field is not None]


def passages(
    index: int,
    text: str,
    partials: Mapping[str, Any],
    given: Mapping[str, str],
    fixed: Collection[str],
    refused: list[Refusal],
) -> tuple[Segment, ...]:
    """Lines of a system text as units: runs of fixed text, and passages that hold a variable."""
    lines = text.splitlines(keepends=True)
    levels = [_line_level(line, partials, given, fixed, refused) for line in lines]
    spans = _spans(lines, levels)
    out: list[Segment] = []
    taken: dict[str, int] = {}
    for start, end, level in spans:
        content = "".join(lines[start:end])
        plain = level in (None, "build")
        names = list(dict.fromkeys(fields(content)))
        name = f"messages[{index}]" if plain else "+".join(names)
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            name += f"#{taken[name]}"
        out.append(
            Segment(
                name=name,
                kind="instructions" if plain else "context",
                role="system",
                content=content,
                stability="build" if plain else level or "",
                declared=not plain,
                message=index,
            )
        )
    return tuple(out)


def _line_level(
    line: str,
    partials: Mapping[str, Any],
    given: Mapping[str, str],
    fixed: Collection[str],
    refused: list[Refusal],
) -> str | None:
    """The level of a line by its fastest variable; None where it must stay."""
    names = list(dict.fromkeys(fields(line)))
    levels = {name: level_of(name, given, fixed) for name in names}
    for name in names:
        if levels[name] is None:
            why = "how long it lasts is not known: name it in volatile=, stable= or stability=."
            refused.append(Refusal(name, why))
    if not names or None in levels.values():
        return None
    level = max((x for x in levels.values() if x), key=STABILITIES.index)
    if stability_rank(level) <= _DEPLOYED:
        return None
    label = "+".join(names)
    fast = stability_rank(level) > LASTING
    own = [n for n in names if n in partials]
    if own and fast:
        why = f"{own[0]!r} is a partial variable of its own message template: set it on the whole."
        refused.append(Refusal(label, why))
        return None
    words = "".join(literal for literal, _, _, _ in Formatter().parse(line))
    if fast and (_SENTENCE_END.search(line.strip()) or len(words.split()) > _MAX_WORDS):
        why = "its line says more than the variable: put the variable on a line of its own."
        refused.append(Refusal(label, why))
        return None
    rule = closing(line) if fast else None
    if rule:
        refused.append(Refusal(label, f"its line is a rule ({rule!r}), which keeps its authority."))
        return None
    return level


def _spans(lines: Sequence[str], levels: Sequence[str | None]) -> list[tuple[int, int, str | None]]:
    """Runs `[start, end)` of lines with one level. A label or a tag around a variable's line goes
    with it; lines that are next to each other and have a variable each are apart, so that each is
    tied, or moves, by itself."""
    level = list(levels)
    head = list(range(len(lines)))
    for i in range(len(lines)):
        if levels[i] is None:
            continue
        start, end = i, i + 1
        opened = _TAG_LINE.match(lines[start - 1]) if start else None
        closed = _TAG_LINE.match(lines[end]) if end < len(lines) else None
        pair = opened and closed and not opened.group(1) and closed.group(1)
        if opened and closed and pair and opened.group(2) == closed.group(2):
            start, end = start - 1, end + 1
        if start and levels[start - 1] is None and lines[start - 1].rstrip().endswith((":", "：")):
            start -= 1
        for j in range(start, end):
            level[j], head[j] = levels[i], start
    spans: list[tuple[int, int, str | None]] = []
    for i, _line in enumerate(lines):
        last = spans[-1] if spans else None
        if last and last[2] == level[i] and (level[i] is None or head[i] == head[i - 1]):
            spans[-1] = (last[0], i + 1, last[2])
        else:
            spans.append((i, i + 1, level[i]))
    return spans
