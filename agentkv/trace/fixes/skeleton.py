"""`Skeleton`: what all versions of a text have in common, in order; learnt one version at a time."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

_BITS = re.compile(r"\w+|[^\w\s]|\s+")
_END = re.compile(r"\n|[.!?;](?=\s)[^\S\n]*\n?")
LABEL = 120
"""Characters of a line around a value that move with it at most."""
LONG = 3000
"""Middles of more bits than this are taken as changed whole."""
LEAST = 3
"""Bits that agree between two changes, at least; fewer agree by chance (a colon, a blank)."""


class Skeleton:
    """Runs of bits (words, marks, blanks) that every version has, with gaps between them."""

    def __init__(self, text: str) -> None:
        self.runs: list[list[str]] = [_BITS.findall(text)]
        self.open_start = self.open_end = False
        self.versions = 1
        self._last = text
        self._joined: list[str] | None = None

    def add(self, text: str) -> None:
        """Narrow it to what `text` has as well."""
        if text == self._last:
            return
        self._last = text
        self.versions += 1
        if self._fits(text):
            return
        flat: list[str | None] = [None] if self.open_start else []
        for index, run in enumerate(self.runs):
            if index:
                flat.append(None)
            flat += run
        if self.open_end:
            flat.append(None)
        kept = _common(flat, list(_BITS.findall(text)))
        self.open_start = bool(kept) and kept[0] is None
        self.open_end = len(kept) > 1 and kept[-1] is None
        runs: list[list[str]] = [[]]
        for bit in kept:
            if bit is None:
                runs.append([])
            else:
                runs[-1].append(bit)
        last = len(runs) - 1
        cut = [_whole_words(r, before=i > 0, after=i < last) for i, r in enumerate(runs)]
        self.open_start |= bool(cut) and not cut[0]
        self.open_end |= bool(cut) and not cut[-1]
        self.runs = [r for r in cut if r]
        self._joined = None

    def _fits(self, text: str) -> bool:
        """Whether a text has all of the runs in order: nothing is left to narrow."""
        at = 0
        for index, needle in enumerate(self._needles()):
            at = text.find(needle, at)
            if at < 0 or (index == 0 and at and not self.open_start):
                return False
            at += len(needle)
        return at == len(text) or self.open_end

    def _needles(self) -> list[str]:
        if self._joined is None:
            self._joined = ["".join(run) for run in self.runs]
        return self._joined

    @property
    def changes(self) -> bool:
        """Whether anything changed between versions, and anything stayed."""
        return self.versions > 1 and bool(self.runs)

    def split(self, text: str) -> tuple[str, list[tuple[int, str]]] | None:
        """What stays; and what changes, with the line or sentence that it stands in, in order: how
        many stretches stay in front of it, and its text. None when the text does not fit."""
        stretches: list[tuple[bool, str]] = []
        at = 0
        last = len(self.runs) - 1
        for index, needle in enumerate(self._needles()):
            where = text.find(needle, at)
            if where < 0 or (index == 0 and not self.open_start and where != 0):
                return None
            opens = index == 0 and not self.open_start
            closes = index == last and not self.open_end
            stays = _between(needle, opens=opens, closes=closes)
            stretches += [
                (False, text[at:where] + needle[: stays.start]),
                (True, needle[stays]),
                (False, needle[stays.stop :]),
            ]
            at = where + len(needle)
        stretches.append((False, text[at:]))
        fixed: list[str] = []
        values: list[tuple[int, str]] = []
        for stay, stretch in stretches:
            if stay and stretch:
                fixed.append(stretch)
            elif not stay and stretch:
                if values and values[-1][0] == len(fixed):
                    values[-1] = (len(fixed), values[-1][1] + stretch)
                else:
                    values.append((len(fixed), stretch))
        return "".join(fixed), [(n, v.strip()) for n, v in values if v.strip()]


def _between(run: str, *, opens: bool, closes: bool) -> slice:
    """What of a run stays: all but the rest of the line (or sentence) that a value in front of it
    stands in, and the beginning of the one behind. `opens`, `closes`: nothing is there."""
    ends = [m.end() for m in _END.finditer(run)]
    start, end = 0, len(run)
    if not opens:
        start = next(iter(ends), end if closes else end + 1)
    if not closes:
        end = next(reversed(ends), 0 if opens else -1)
    if start > end:  # it ends no line: some words between two values
        return slice(0, 0) if len(run) <= LABEL else slice(0, len(run))
    return slice(start if start <= LABEL else 0, end if len(run) - end <= LABEL else len(run))


def _whole_words(run: list[str], *, before: bool, after: bool) -> list[str]:
    """A run without the words that a gap beside it cuts in two."""
    start, end = 0, len(run)
    if before:
        # The mark that ends the value's sentence is where the next one begins.
        while start < end and not (
            run[start].isspace() or (run[start] in ".!?;" and run[start + 1 : start + 2] == [" "])
        ):
            start += 1
    if after:
        while end > start and not run[end - 1].isspace():
            end -= 1
    return run[start:end]


def _common(old: list[str | None], new: list[str]) -> list[str | None]:
    """`old` narrowed to what `new` has in the same order; None stands for a gap."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    out: list[str | None] = list(old[:head])
    if middle_old or middle_new:
        if len(middle_old) > LONG or len(middle_new) > LONG:
            out.append(None)
        else:
            out += _aligned(middle_old, middle_new)
    out += old[len(old) - tail :] if tail else []
    merged: list[str | None] = []
    for bit in out:
        if bit is not None or not merged or merged[-1] is not None:
            merged.append(bit)
    return merged


def _aligned(old: list[str | None], new: list[str]) -> list[str | None]:
    out: list[str | None] = [None]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for a, _, size in matcher.get_matching_blocks():
        run = old[a : a + size]
        if len(run) >= LEAST and any(b and b.strip() and b.isalnum() for b in run):
            out += [*run, None]
    return out
