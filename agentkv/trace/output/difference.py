"""Two short texts, and the stretch in which they differ, so that an eye finds it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """`before + was + after` and `before + now + after` are the two texts."""

    before: str
    was: str
    now: str
    after: str


def difference(was: str, now: str) -> Difference:
    """The least stretch outside which both texts are equal. Whole words where the texts have
    them: `14:02:11` against `14:02:19` is shown as one time and not as one digit."""
    most = min(len(was), len(now))
    start = 0
    while start < most and was[start] == now[start]:
        start += 1
    end = 0
    while end < most - start and was[-1 - end] == now[-1 - end]:
        end += 1
    if was == now:
        return Difference(was, "", "", "")
    for _ in range(_WORD):
        if not start or was[start - 1].isspace():
            break
        start -= 1
    else:
        start += _WORD
    for _ in range(_WORD):
        if not end or was[len(was) - end].isspace():
            break
        end -= 1
    else:
        end += _WORD
    return Difference(
        was[:start], was[start : len(was) - end], now[start : len(now) - end], was[len(was) - end :]
    )


_WORD = 24
"""Characters by which a stretch grows at most to reach the ends of its words."""


def visible(text: str) -> str:
    """Characters that print nothing, or change how a terminal shows text, as signs of their own."""
    return "".join(_sign(c) for c in text)


def visible_marked(text: str) -> str:
    """As `visible`, for the stretch that differs: there blanks matter too."""
    if text and not text.strip():
        return "".join(_BLANKS.get(c) or _sign(c) for c in text)
    return visible(text)


def one_line(text: str, most: int, *, end: bool = False) -> str:
    """At most `most` characters of it on one line: the last ones with `end`, else the first."""
    text = visible(text)
    if len(text) <= most:
        return text
    most = max(most, 1)
    return "…" + text[len(text) - most + 1 :] if end else text[: most - 1] + "…"


_SIGNS = {"\n": "⏎", "\r": "␍", "\t": "⇥"}
_BLANKS = {" ": "·", **_SIGNS}


def _sign(c: str) -> str:
    if c == " " or (c.isprintable() and not unicodedata.combining(c)):
        return c
    if c in _SIGNS:
        return _SIGNS[c]
    if unicodedata.combining(c):
        return c
    return f"‹U+{ord(c):04X}›"
