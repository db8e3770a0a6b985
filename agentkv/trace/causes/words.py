"""Two versions of a few lines: which words changed, each change widened to the whole value that it
touches; and `Edit`, which is one change of a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Literal

from agentkv.trace.causes.values import ValueKind, around, kind_of_change

ChangeKind = ValueKind | Literal["reorder", "json"]

MAX_WORDS = 700
LONG_LIST = 100
LEAST_RUN = 12
"""Characters of an unbroken stretch of words that still counts as having stayed."""
ALIKE = 0.3

MANY_SPANS = 8
SHORT_WORDS = 80
RELATED = 0.1
"""Share of the shorter text's phrases."""
Span = tuple[int, int, int, int]

_SIGN = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
"""Scripts that are written without blanks: a sign is a word."""
_WORD = re.compile(rf"[{_SIGN}]|[^\W{_SIGN}]+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Edit:
    """`old[old_at:old_end]` became `new[at:end]`.

    `label`: what stands in front of it on its line. `moved`: of a reorder, the texts that moved.
    """

    kind: ChangeKind
    old_at: int
    old_end: int
    at: int
    end: int
    was: str
    now: str
    label: str = ""
    moved: tuple[str, ...] = ()


def changed_words(
    old: str, new: str, old_at: int, old_end: int, at: int, end: int
) -> tuple[list[Edit], list[tuple[int, int]]]:
    """Edits and runs of one block of lines that differs."""
    was, now = old[old_at:old_end], new[at:end]
    if not was.strip() or not now.strip():
        return [edit_of(old, new, old_at, old_end, at, end)], []
    a, b = _WORD.findall(was), _WORD.findall(now)
    a_starts, b_starts = starts_of(a), starts_of(b)
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    spans: list[tuple[int, int, int, int]] = []
    mid_a, mid_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if max(len(mid_a), len(mid_b)) > MAX_WORDS:
        ops = [("replace", 0, len(mid_a), 0, len(mid_b))]
    elif min(len(mid_a), len(mid_b)) > SHORT_WORDS and not _related(mid_a, mid_b):
        # Another text in this place: looking for words that it shares by chance costs most, and
        # says nothing.
        return [edit_of(old, new, old_at, old_end, at, end)], []
    else:
        ops = list(matcher(mid_a, mid_b).get_opcodes())
    for tag, i1, i2, j1, j2 in ops:
        if tag != "equal":
            spans.append(
                (
                    a_starts[head + i1] + old_at,
                    a_starts[head + i2] + old_at,
                    b_starts[head + j1] + at,
                    b_starts[head + j2] + at,
                )
            )
    changed = sum(s[3] - s[2] for s in spans), sum(s[1] - s[0] for s in spans)
    if len(spans) > MANY_SPANS and (
        changed[0] > (1 - ALIKE) * len(now) or changed[1] > (1 - ALIKE) * len(was)
    ):
        return [edit_of(old, new, old_at, old_end, at, end)], []
    spans = _merge(old, new, [_widen(old, new, s) for s in spans])
    edits = [edit_of(old, new, *s) for s in spans]
    runs: list[tuple[int, int]] = []
    reach = at
    for edit in edits:
        if edit.at - reach >= LEAST_RUN:
            runs.append((reach, edit.at))
        reach = max(reach, edit.end)
    if end - reach >= LEAST_RUN:
        runs.append((reach, end))
    shaped = any(e.kind not in ("words", "text", "number") for e in edits)
    stay = len(now) - sum(e.end - e.at for e in edits)
    if not shaped and stay < ALIKE * max(len(was), len(now)):
        return [edit_of(old, new, old_at, old_end, at, end)], []
    return edits, runs


def _related(a: list[str], b: list[str]) -> bool:
    """Whether two long texts share phrases of five bits (words and what is between them)."""
    mine = set(zip(a, a[1:], a[2:], a[3:], a[4:], strict=False))
    theirs = set(zip(b, b[1:], b[2:], b[3:], b[4:], strict=False))
    return len(mine & theirs) >= RELATED * min(len(mine), len(theirs))


def _widen(old: str, new: str, span: Span) -> Span:
    """A change inside a value becomes a change of the value; inside a word, of the word."""
    i1, i2, j1, j2 = span
    line_a, line_b = _line(old, i1, i2), _line(new, j1, j2)
    va = around(old[line_a[0] : line_a[1]], i1 - line_a[0], max(i2, i1 + 1) - line_a[0])
    vb = around(new[line_b[0] : line_b[1]], j1 - line_b[0], max(j2, j1 + 1) - line_b[0])
    if va is not None and vb is not None:
        # Each side by its own value; spans that come to overlap are joined.
        return (
            min(i1, line_a[0] + va.start),
            max(i2, line_a[0] + va.end),
            min(j1, line_b[0] + vb.start),
            max(j2, line_b[0] + vb.end),
        )
    back = 0
    while (
        i1 - back > 0
        and j1 - back > 0
        and old[i1 - back - 1] == new[j1 - back - 1]
        and not old[i1 - back - 1].isspace()
        and old[i1 - back - 1] not in "\"'`([{<>:=,;"
    ):
        back += 1
    on = 0
    while (
        i2 + on < len(old)
        and j2 + on < len(new)
        and old[i2 + on] == new[j2 + on]
        and not old[i2 + on].isspace()
        and old[i2 + on] not in "\"'`)]}<>:=,;"
    ):
        on += 1
    return i1 - back, i2 + on, j1 - back, j2 + on


def _merge(old: str, new: str, spans: list[Span]) -> list[Span]:
    """Join changes that are one: overlapping, parts of one foreign format, words side by side."""
    out: list[Span] = []
    for span in spans:
        if not out:
            out.append(span)
            continue
        last = out[-1]
        gap_new, gap_old = new[last[3] : span[2]], old[last[1] : span[0]]
        joined = (last[0], max(last[1], span[1]), last[2], max(last[3], span[3]))
        if span[0] < last[1] or span[2] < last[3]:
            out[-1] = joined
            continue
        kinds = [kind_of_change(old[s[0] : s[1]], new[s[2] : s[3]]) for s in (last, span)]
        # Lines of one text that is another text; short values on two lines are two.
        near = gap_new == gap_old and ("\n" not in gap_new or "text" in kinds)
        loose = all(k in ("words", "text") for k in kinds)
        both = kind_of_change(old[joined[0] : joined[1]], new[joined[2] : joined[3]])
        if (near and loose and len(gap_new.split()) < 3) or (
            near and not gap_new.strip(" ,.()-") and both in ("locale", "clock", "date", "unicode")
        ):
            out[-1] = joined
        else:
            out.append(span)
    return out


def edit_of(
    old: str, new: str, old_at: int, old_end: int, at: int, end: int,
    *, was: str | None = None, now: str | None = None,
) -> Edit:  # fmt: skip
    was = old[old_at:old_end] if was is None else was
    now = new[at:end] if now is None else now
    label = label_of(new, at) or label_of(old, old_at)
    return Edit(kind_of_change(was, now), old_at, old_end, at, end, was, now, label)


def label_of(text: str, at: int) -> str:
    """What stands in front of a place on its line; of a place at a line's start, the line before."""
    start = text.rfind("\n", 0, at) + 1
    label = text[start:at][-80:]
    if not label.strip() and start > 1:
        before = text.rfind("\n", 0, start - 1) + 1
        label = text[before : start - 1][-80:]
    return label


def _line(text: str, start: int, end: int) -> tuple[int, int]:
    left = text.rfind("\n", 0, start) + 1
    right = text.find("\n", end)
    right = len(text) if right < 0 else right
    # A very long line is a paragraph: its values are near.
    return max(left, start - 120), min(right, end + 120)


def starts_of(parts: list[str]) -> list[int]:
    return [0, *accumulate(map(len, parts))]


def matcher(a: list[str], b: list[str]) -> SequenceMatcher[int]:
    """Aligns two lists of bits. In long ones blank bits begin no match, they only join one: they
    tell little, and are so many that looking at all pairs of them costs most of the time."""
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(t, len(numbers)) for t in side] for side in (a, b)]
    long = min(len(a), len(b)) > LONG_LIST
    blank = {number for bit, number in numbers.items() if long and not bit.strip()}
    return SequenceMatcher(blank.__contains__, ids[0], ids[1], autojunk=False)
