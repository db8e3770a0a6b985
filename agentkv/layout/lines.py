"""Header lines of a client that change by the request ("x-billing: ...; cch=3f1a0;").

Some clients put such a line at the very front of the system message, and so lose the whole prefix.
Nothing is taken for one by its looks: a line goes only where the caller names it exactly, by a
literal beginning or by a regular expression that matches the line as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from agentkv.layout.arrangement import Move
from agentkv.prompt.prompt import SYSTEM_ROLES, Prompt
from agentkv.prompt.segment import Segment

Rule = str | re.Pattern[str]


def check(rules: Rule | Iterable[Rule], what: str) -> tuple[Rule, ...]:
    """The rules as a tuple. Raises TypeError or ValueError for what is no rule."""
    given = (rules,) if isinstance(rules, (str, re.Pattern)) else tuple(rules)
    for rule in given:
        if not isinstance(rule, (str, re.Pattern)):
            raise TypeError(f"{what} takes strings and compiled patterns, got {rule!r}.")
        if not (rule if isinstance(rule, str) else rule.pattern):
            raise ValueError(f"{what} holds an empty rule, which every line would match.")
    return given


def cut(
    prompt: Prompt, drop: tuple[Rule, ...], move: tuple[Rule, ...], moves: list[Move]
) -> Prompt:
    """`prompt` without the lines that `drop` names at the front of the first system message, and
    with those that `move` names as units of their own, which change by the call.

    A line ends at a line break, or where the text part ends that it was given in.
    """
    if not (drop or move) or not prompt.messages or prompt.messages[0].role not in SYSTEM_ROLES:
        return prompt
    first = prompt.messages[0]
    headers: list[Segment] = []
    units = list(first.units)
    while units and units[0].part is None and not units[0].declared:
        unit = units[0]
        end = _line_end(unit)
        text, rest = unit.content[:end], unit.content[end:]
        line = text.rstrip("\r\n")
        if any(_names(rule, line) for rule in drop):
            moves.append(Move(f"{unit.name}.header", "dropped"))
        elif any(_names(rule, line) for rule in move):
            headers.append(_header(unit, text, len(headers)))
        else:
            break
        joints = tuple(j - end for j in unit.joints if j > end)
        units[:1] = [replace(unit, content=rest, content_hash="", joints=joints)] if rest else []
    if units == list(first.units):
        return prompt
    head = [replace(first, units=(*headers, *units))] if headers or units else []
    return replace(prompt, messages=(*head, *prompt.messages[1:]))


def _names(rule: Rule, line: str) -> bool:
    if isinstance(rule, str):
        return line.startswith(rule)
    return rule.fullmatch(line) is not None


def _line_end(unit: Segment) -> int:
    """Characters of the first line, its line break included."""
    at = unit.content.find("\n") + 1 or len(unit.content)
    return min(at, unit.joints[0]) if unit.joints else at


def _header(unit: Segment, text: str, count: int) -> Segment:
    return Segment(
        name=f"{unit.name}.header" + (f"#{count + 1}" if count else ""),
        kind="context",
        role=unit.role,
        content=text,
        stability="call",
        declared=True,
        message=unit.message,
        points=False,
    )
