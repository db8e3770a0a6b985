"""Two versions of one text: what changed, what stayed, and what only moved.

Lines (and sentences of long lines) are aligned first, words inside the lines that differ second.
A change is widened to the whole value that it touches, so that `10:05` to `10:06` is one clock and
not the digit 5.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from agentkv.trace.causes.values import LONG, blanks_out, common, part, plain
from agentkv.trace.causes.words import (
    LEAST_RUN,
    ChangeKind,
    Edit,
    changed_words,
    edit_of,
    label_of,
    matcher,
    starts_of,
)

MAX_CHUNKS = 3000
MAX_BLOCKS = 64
REMEMBERED = 2000
"""Characters of a line that is worth remembering."""
STRETCH = 10
MUCH = 0.3
"""Share of what differs that must have moved before it is called another order."""

_CHUNK = re.compile(
    r"<[^<>\n]{1,80}>\n?|[^\n]*?(?:[.!?;](?=\s)[^\S\n]*|(?=<[^<>\n]{1,80}>)|\n|$)", re.DOTALL
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
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
class TextDiff:
    """`edits` by place in the new text; `runs` are stretches `[at, end)` of the new text that the
    old one held too, in order and disjoint. `alike`: share of the longer text in runs."""

    edits: tuple[Edit, ...]
    runs: tuple[tuple[int, int], ...]
    alike: float


def chunks(text: str) -> list[str]:
    """Lines, cut at the ends of sentences and around tags; their concatenation is the text."""
    out: list[str] = []
    for line in _LINE.findall(text):
        out += cut(line) if len(line) < REMEMBERED else cut.__wrapped__(line)
    return out


@lru_cache(maxsize=4096)
def cut(line: str) -> tuple[str, ...]:
    """The chunks of one line; the lines of a log repeat."""
    return tuple(m[0] for m in _CHUNK.finditer(line) if m[0])


def norm(chunk: str) -> str:
    """A chunk without what its rank in a list does to it: its number, its score."""
    return bare(chunk) if len(chunk) < REMEMBERED else bare.__wrapped__(chunk)


@lru_cache(maxsize=4096)
def bare(chunk: str) -> str:
    """`norm` of a chunk that may come again."""
    chunk = _SCORE.sub("", chunk).strip()
    if _TAG.match(chunk):
        return _DIGITS.sub("#", chunk)
    return _ENUMERATOR.sub("", chunk).strip()


def common_stretch(old: str, new: str) -> bool:
    """Whether two texts share some ten words in a row (or, without blanks, 64 characters): a cheap
    look before two long ones are aligned."""
    if min(len(old), len(new)) < LONG:
        return True
    if not part(old[:1], new[:1]) and blanks_out(old) == blanks_out(new):
        return True
    a, b = old.split(), new.split()
    if len(a) > len(old) // 40:  # it has blanks, so its words are its words
        return _stretch(a, b)
    return _stretch(a, b) or _stretch(_pairs(old), _pairs(new))


def _stretch(a: list[str], b: list[str]) -> bool:
    """Whether there are ten in a row that both have. Of ten, five stand at a place that five
    divides: few have to be looked up before all are."""
    half = STRETCH // 2
    some = {tuple(a[i : i + half]) for i in range(0, len(a) - half + 1, half)}
    if some.isdisjoint(_stretches(b, half)):
        return False
    return not set(_stretches(a, STRETCH)).isdisjoint(_stretches(b, STRETCH))


def _stretches(words: list[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(n)), strict=False)


def _pairs(text: str) -> list[str]:
    """Eight characters each, for scripts without blanks; cut at punctuation."""
    return [part[i : i + 8] for part in re.split(r"\W+", text) for i in range(0, len(part), 8)]


def diff(old: str, new: str, *, words: int = MAX_BLOCKS) -> TextDiff:
    """Align two texts that are not equal. `words`: how many stretches of lines that differ are
    looked into word by word; where there are more, the texts are others."""
    first = common(old, new)
    whole = _whole_change(old, new, first)
    if whole is not None:
        edit = Edit(
            whole, first, len(old), first, len(new), old[first:], new[first:], label_of(new, first)
        )
        return TextDiff((edit,), _cut(_join([(0, len(new))]), [first]), 1.0)
    a, b = _parts(old, new, first)
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    a_starts, b_starts = starts_of(a), starts_of(b)
    mid_a, mid_b = range(head, len(a) - tail), range(head, len(b) - tail)
    kept: list[tuple[int, int]] = [(0, b_starts[head]), (b_starts[len(b) - tail], len(new))]
    same: list[tuple[int, int]] = []
    blocks: list[tuple[range, range]] = []
    if max(len(mid_a), len(mid_b)) > MAX_CHUNKS:
        blocks.append((mid_a, mid_b))
    else:
        for tag, i1, i2, j1, j2 in matcher(
            [a[i] for i in mid_a], [b[j] for j in mid_b]
        ).get_opcodes():
            olds, news = range(head + i1, head + i2), range(head + j1, head + j2)
            if tag == "equal" and any(b[j].strip() for j in news):
                kept.append((b_starts[news.start], b_starts[news.stop]))
                same += zip(olds, news, strict=True)
            elif blocks and (blocks[-1][0].stop, blocks[-1][1].stop) == (olds.start, news.start):
                # Blank lines alone do not hold two changes apart.
                blocks[-1] = (
                    range(blocks[-1][0].start, olds.stop),
                    range(blocks[-1][1].start, news.stop),
                )
            elif tag != "equal":
                blocks.append((olds, news))
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
            edits.append(edit_of(old, new, *at, was=was, now=now))
            continue
        words -= 1
        if words < 0:
            edits.append(edit_of(old, new, old_at, old_at + len(was), new_at, new_at + len(now)))
            continue
        inner, runs = changed_words(old, new, old_at, old_at + len(was), new_at, new_at + len(now))
        edits += inner
        kept += runs
    edits.sort(key=lambda e: (e.at, e.end))
    runs_all = _cut(_join(kept), [e.at for e in edits])
    stayed = sum(e - s for s, e in runs_all)
    return TextDiff(tuple(edits), runs_all, stayed / max(len(old), len(new), 1))


def _parts(old: str, new: str, first: int) -> tuple[list[str], list[str]]:
    """Chunks of both; what they begin and end with in common, in whole lines, is one chunk each."""
    front = max(old.rfind("\n", 0, first), old.rfind(". ", 0, first)) + 1
    back = common(old[front:][::-1], new[front:][::-1])
    starts = [old.find(mark, len(old) - back) for mark in ("\n", ". ")]
    ends = [len(old) - at - 1 for at in starts if at >= 0]
    tail = max(ends, default=0)
    sides = []
    for text in (old, new):
        middle = chunks(text[front : len(text) - tail])
        sides.append([p for p in (text[:front], *middle, text[len(text) - tail :]) if p])
    return sides[0], sides[1]


def _whole_change(old: str, new: str, first: int) -> ChangeKind | None:
    """Changes that no alignment of lines should cut into many. `first`: where the texts part."""
    if not part(old[first : first + 1], new[first : first + 1]):
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
            label_of(new_text, at), moved,
        ),
    )  # fmt: skip


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
