"""Two versions of one text: what changed, what stayed, and what only moved.

Lines (and sentences of long lines) are aligned first, words inside the lines that differ second.
A change is widened to the whole value that it touches, so that `10:05` to `10:06` is one clock and
not the digit 5.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from agentkv.trace.causes.values import ValueKind, around, blanks_out, kind_of_change, plain

ChangeKind = ValueKind | Literal["reorder", "json"]

MAX_CHUNKS = 3000
MAX_WORDS = 700
LEAST_RUN = 12
"""Characters of an unbroken stretch of words that still counts as having stayed."""
MAX_BLOCKS = 64
ALIKE = 0.3
MUCH = 0.3
"""Share of what differs that must have moved before it is called another order."""

_CHUNK = re.compile(
    r"<[^<>\n]{1,80}>\n?|[^\n]*?(?:[.!?;](?=\s)[^\S\n]*|(?=<[^<>\n]{1,80}>)|\n|$)", re.DOTALL
)
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_ENUMERATOR = re.compile(
    r"^\s*(?:[-*•#]+\s*)?(?:(?:doc(?:ument)?|source|passage|context|chunk|example|result|"
    r"ref(?:erence)?|item|snippet|excerpt|article)s?\s*)?(?:[\[(#<]?\d+[\])>.:]+|#?\d+(?=\s*$|\s*[:(]))"
    r"\s*[:.)-]?\s*",
    re.IGNORECASE,
)
_SCORE = re.compile(
    r"[\[(]?\b(?:score|relevance|similarity|distance|rank)\b\s*[:=]?\s*-?\d+(?:\.\d+)?%?[\])]?",
    re.IGNORECASE,
)
_TAG = re.compile(r"^\s*<[^<>]*>\s*$")
_DIGITS = re.compile(r"\d+")


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


@dataclass(frozen=True, slots=True)
class TextDiff:
    """`edits` by place in the new text; `runs` are stretches `[at, end)` of the new text that the
    old one held too, in order and disjoint. `alike`: share of the longer text in runs."""

    edits: tuple[Edit, ...]
    runs: tuple[tuple[int, int], ...]
    alike: float


def chunks(text: str) -> list[str]:
    """Lines, cut at the ends of sentences and around tags; their concatenation is the text."""
    return [m[0] for m in _CHUNK.finditer(text) if m[0]]


def norm(chunk: str) -> str:
    """A chunk without what its rank in a list does to it: its number, its score."""
    chunk = _SCORE.sub("", chunk).strip()
    if _TAG.match(chunk):
        return _DIGITS.sub("#", chunk)
    return _ENUMERATOR.sub("", chunk).strip()


def diff(old: str, new: str, *, words: int = MAX_BLOCKS) -> TextDiff:
    """Align two texts that are not equal. `words`: how many stretches of lines that differ are
    looked into word by word; where there are more, the texts are others."""
    first = _common(old, new)
    whole = _whole_change(old, new)
    if whole is not None:
        edit = Edit(
            whole, first, len(old), first, len(new), old[first:], new[first:], _label(new, first)
        )
        return TextDiff((edit,), ((0, first), (first, len(new))), 1.0)
    a, b = chunks(old), chunks(new)
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    a_starts, b_starts = _starts(a), _starts(b)
    mid_a, mid_b = range(head, len(a) - tail), range(head, len(b) - tail)
    kept: list[tuple[int, int]] = [(0, b_starts[head]), (b_starts[len(b) - tail], len(new))]
    same: list[tuple[int, int]] = []
    blocks: list[tuple[range, range]] = []
    if max(len(mid_a), len(mid_b)) > MAX_CHUNKS:
        blocks.append((mid_a, mid_b))
    else:
        for tag, i1, i2, j1, j2 in _matcher(
            [a[i] for i in mid_a], [b[j] for j in mid_b]
        ).get_opcodes():
            if tag == "equal":
                kept.append((b_starts[head + j1], b_starts[head + j2]))
                same += [(head + i1 + d, head + j1 + d) for d in range(i2 - i1)]
            else:
                blocks.append((range(head + i1, head + i2), range(head + j1, head + j2)))
    gone, come, edit_moved = _moves(a, b, blocks, a_starts, b_starts, same)
    kept += [(b_starts[j], b_starts[j + 1]) for j in come]
    edits: list[Edit] = [] if edit_moved is None else [edit_moved]
    for olds, news in blocks:
        old_left = [i for i in olds if i not in gone]
        new_left = [j for j in news if j not in come]
        if edit_moved is not None and not any(
            norm(t) and not _TAG.match(t)
            for t in [*(a[i] for i in old_left), *(b[j] for j in new_left)]
        ):
            continue  # numbers of a list whose items moved
        if not old_left and not new_left:
            continue
        # Blank chunks in front say nothing of where the change is.
        first_old = next((i for i in old_left if a[i].strip()), old_left[0] if old_left else None)
        first_new = next((j for j in new_left if b[j].strip()), new_left[0] if new_left else None)
        old_at = a_starts[olds.start if first_old is None else first_old]
        new_at = b_starts[news.start if first_new is None else first_new]
        was = "".join(a[i] for i in old_left if first_old is None or i >= first_old)
        now = "".join(b[j] for j in new_left if first_new is None or j >= first_new)
        unbroken = old.startswith(was, old_at) and new.startswith(now, new_at)
        if edit_moved is not None and not unbroken:  # moved chunks stand in between
            at = (old_at, old_at + len(was), new_at, new_at + len(now))
            edits.append(_edit(old, new, *at, was=was, now=now))
            continue
        words -= 1
        if words < 0:
            edits.append(_edit(old, new, old_at, old_at + len(was), new_at, new_at + len(now)))
            continue
        inner, runs = _words(old, new, old_at, old_at + len(was), new_at, new_at + len(now))
        edits += inner
        kept += runs
    edits.sort(key=lambda e: (e.at, e.end))
    runs_all = _cut(_join(kept), [e.at for e in edits])
    stayed = sum(e - s for s, e in runs_all)
    return TextDiff(tuple(edits), runs_all, stayed / max(len(old), len(new), 1))


def _whole_change(old: str, new: str) -> ChangeKind | None:
    """Changes that no alignment of lines should cut into many."""
    if blanks_out(old) == blanks_out(new):
        return "whitespace"
    if blanks_out(plain(old)) == blanks_out(plain(new)):
        return "unicode"
    if old.lstrip()[:1] in ("{", "[") and new.lstrip()[:1] in ("{", "["):
        try:
            if json.loads(old) == json.loads(new):
                return "json"
        except (ValueError, RecursionError):
            return None
    return None


def _moves(
    a: list[str],
    b: list[str],
    blocks: list[tuple[range, range]],
    a_starts: list[int],
    b_starts: list[int],
    kept: list[tuple[int, int]],
) -> tuple[set[int], set[int], Edit | None]:
    """Chunks that left one place and stand in another: their numbers, and one edit for them all."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for olds, _ in blocks:
        for i in olds:
            places[norm(a[i])].append(i)
    pairs: list[tuple[int, int]] = []
    weight = 0
    for _, news in blocks:
        for j in news:
            key = norm(b[j])
            if places.get(key) and key:
                pairs.append((places[key].pop(0), j))
                weight += 0 if _TAG.match(key) else len(key.split())
    if weight < 2 or not any(len(norm(b[j])) >= LEAST_RUN for _, j in pairs):
        return set(), set(), None
    # Lines with another number in front, in the order in which they were: a list grew, if several.
    order = [i for i, _ in sorted([*pairs, *kept], key=lambda pair: pair[1])]
    if order == sorted(order) and len(pairs) < 2:
        return set(), set(), None
    gone, come = {i for i, _ in pairs}, {j for _, j in pairs}
    if sum(len(b[j]) for j in come) < MUCH * sum(len(b[j]) for _, news in blocks for j in news):
        return set(), set(), None  # other items, a few of which were there before
    at, end = b_starts[min(come)], b_starts[max(come) + 1]
    old_at, old_end = a_starts[min(gone)], a_starts[max(gone) + 1]
    # Where the order parts is the first block that lost or won a moved chunk.
    for olds, news in blocks:
        if any(i in gone for i in olds) or any(j in come for j in news):
            at, old_at = min(at, b_starts[news.start]), min(old_at, a_starts[olds.start])
            break
    old_text, new_text = "".join(a), "".join(b)
    moved = tuple(b[j].strip() for j in sorted(come)[:8])
    return (
        gone,
        come,
        Edit(
            "reorder", old_at, old_end, at, end, old_text[old_at:old_end], new_text[at:end],
            _label(new_text, at), moved,
        ),
    )  # fmt: skip


def _words(
    old: str, new: str, old_at: int, old_end: int, at: int, end: int
) -> tuple[list[Edit], list[tuple[int, int]]]:
    """Edits and runs of one block of lines that differs."""
    was, now = old[old_at:old_end], new[at:end]
    if not was.strip() or not now.strip():
        return [_edit(old, new, old_at, old_end, at, end)], []
    a, b = _WORD.findall(was), _WORD.findall(now)
    a_starts, b_starts = _starts(a), _starts(b)
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    spans: list[tuple[int, int, int, int]] = []
    mid_a, mid_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if min(len(mid_a), len(mid_b)) > SHORT_WORDS and not _related(mid_a, mid_b):
        # Another text in this place: looking for words that it shares by chance costs most, and
        # says nothing.
        return [_edit(old, new, old_at, old_end, at, end)], []
    if max(len(mid_a), len(mid_b)) > MAX_WORDS:
        ops = [("replace", 0, len(mid_a), 0, len(mid_b))]
    else:
        ops = list(_matcher(mid_a, mid_b).get_opcodes())
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
        return [_edit(old, new, old_at, old_end, at, end)], []
    spans = _merge(old, new, [_widen(old, new, s) for s in spans])
    edits = [_edit(old, new, *s) for s in spans]
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
        return [_edit(old, new, old_at, old_end, at, end)], []
    return edits, runs


def _related(a: list[str], b: list[str]) -> bool:
    """Whether two long texts share phrases of five bits (words and what is between them)."""
    mine = set(zip(a, a[1:], a[2:], a[3:], a[4:], strict=False))
    theirs = set(zip(b, b[1:], b[2:], b[3:], b[4:], strict=False))
    return len(mine & theirs) >= RELATED * min(len(mine), len(theirs))


MANY_SPANS = 8
SHORT_WORDS = 80
RELATED = 0.1
"""Share of the shorter text's phrases."""

Span = tuple[int, int, int, int]


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
        near = gap_new == gap_old and "\n" not in gap_new
        kinds = [kind_of_change(old[s[0] : s[1]], new[s[2] : s[3]]) for s in (last, span)]
        loose = all(k in ("words", "text") for k in kinds)
        both = kind_of_change(old[joined[0] : joined[1]], new[joined[2] : joined[3]])
        if (near and loose and len(gap_new.split()) < 3) or (
            near and not gap_new.strip(" ,.()-") and both in ("locale", "clock", "date", "unicode")
        ):
            out[-1] = joined
        else:
            out.append(span)
    return out


def _edit(
    old: str, new: str, old_at: int, old_end: int, at: int, end: int,
    *, was: str | None = None, now: str | None = None,
) -> Edit:  # fmt: skip
    was = old[old_at:old_end] if was is None else was
    now = new[at:end] if now is None else now
    label = _label(new, at) or _label(old, old_at)
    return Edit(kind_of_change(was, now), old_at, old_end, at, end, was, now, label)


def _label(text: str, at: int) -> str:
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


def _starts(parts: list[str]) -> list[int]:
    out = [0]
    for part in parts:
        out.append(out[-1] + len(part))
    return out


def _common(a: str, b: str) -> int:
    """Length of the longest common prefix of two texts."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        mid = (low + high + 1) // 2
        if a[low:mid] == b[low:mid]:
            low = mid
        else:
            high = mid - 1
    return low


def _matcher(a: list[str], b: list[str]) -> SequenceMatcher[int]:
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(t, len(numbers)) for t in side] for side in (a, b)]
    return SequenceMatcher(None, ids[0], ids[1], autojunk=False)


def _join(runs: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    out: list[tuple[int, int]] = []
    for start, end in sorted(r for r in runs if r[1] > r[0]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return tuple(out)


def _cut(runs: tuple[tuple[int, int], ...], places: list[int]) -> tuple[tuple[int, int], ...]:
    """Runs cut where a change starts: what stands in front of it is not lost to it."""
    out: list[tuple[int, int]] = []
    for start, end in runs:
        for place in sorted(p for p in places if start < p < end):
            out.append((start, place))
            start = place
        out.append((start, end))
    return tuple(out)


def same_items(old: list[str], new: list[str]) -> bool:
    """Whether two lists hold the same texts, whatever their order."""
    return Counter(old) == Counter(new)
