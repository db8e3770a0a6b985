"""Values in a recorded request that look as if they change from call to call.

A time or an id alone says nothing: policies and examples have fixed ones. Words beside it must say
that it is about this call, or another request must have another value at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentkv.lint.formats._messages import Item
from agentkv.lint.formats._region import Region
from agentkv.lint.template import Hole, Trait

_CLOCK = (
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?(?:Z|UTC|GMT|[A-Z]{3,4}|[+-]\d{2}:?\d{2}))?"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? \w+ \d{1,2},? (?:\d{4},? )?(?:at )?\d{1,2}:\d{2}(?::\d{2})?(?: ?[AP]M)?(?: \d{4})?"
    r"|\d{1,2}/\d{1,2}/\d{4},? \d{1,2}:\d{2}(?::\d{2})?(?: ?[AP]M)?"
)
_DATE = (
    r"\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4}"
    r"|(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,? )?(?:January|February|March|April|May|June|July|August|September|"
    r"October|November|December) \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
)
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_EPOCH = r"1[5-9]\d{8}(?:\.\d+|\d{3})?"
_HEX = r"(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}"
_NOW = r"(?:current|now|today|present|system|local|server|as of|right now|it is|timestamp|generated|time|date)"
_ID = r"(?:request|run|trace|session|conversation|correlation|message|invocation|thread|call|span|job|nonce|cache[- ]?bust\w*|x-[\w-]+)"

_PATTERNS: tuple[tuple[re.Pattern[str], Trait, str], ...] = (
    (re.compile(rf"(?i:\b{_NOW}\b)[^\n\d]{{0,40}}?(?P<value>{_CLOCK})"), "clock", "a time of day"),
    (
        re.compile(rf"(?i:\b{_NOW}\b)[^\n\d]{{0,30}}?(?P<value>\b{_EPOCH}\b)"),
        "clock",
        "seconds since 1970",
    ),
    (
        re.compile(
            rf"(?i:\b(?:today|current date|current day|date today|as of)\b|\bdate:)[^\n\d]{{0,24}}?(?P<value>{_DATE})"
        ),
        "date",
        "a date",
    ),
    (
        re.compile(rf"(?i:\b{_ID}\b)[^\n]{{0,24}}?(?P<value>\b{_UUID}\b)"),
        "random_id",
        "a random id",
    ),
    (
        re.compile(rf"(?i:\b{_ID}[ _-]?(?:id|no|hash)?\b)\s*[:=#]\s*(?P<value>\b{_HEX}\b)"),
        "random_id",
        "a random id",
    ),
)
_ANY: tuple[tuple[re.Pattern[str], Trait, str], ...] = (
    (re.compile(_CLOCK), "clock", "a time of day"),
    (re.compile(_DATE), "date", "a date"),
    (re.compile(rf"\b{_UUID}\b"), "random_id", "a random id"),
    (re.compile(rf"\b{_EPOCH}\b"), "clock", "seconds since 1970"),
    (re.compile(rf"\b{_HEX}\b"), "random_id", "a random id"),
)
_FRACTION = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}[.,]\d{3,}")
"""Nobody writes a policy's date to the millisecond."""
_CONSTANT = re.compile(
    r"(?i)\b(?:cut-?off|released?|version|trained|until|since|effective|updated|example|e\.g\.|founded|born)\b"
)


@dataclass(frozen=True, slots=True)
class Shape:
    start: int
    end: int
    trait: Trait
    what: str


def shapes(text: str) -> list[Shape]:
    """Values of this call in a text, in order, not overlapping."""
    found: list[Shape] = []
    for pattern, trait, what in _PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span("value")
            line = text.rfind("\n", 0, start) + 1
            if _CONSTANT.search(text[max(line, start - 40) : start]):
                continue
            if not any(s.start < end and start < s.end for s in found):
                found.append(Shape(start, end, trait, what))
    for shape in every(text):
        precise = shape.trait == "clock" and _FRACTION.match(text, shape.start) is not None
        if precise and not any(s.start < shape.end and shape.start < s.end for s in found):
            found.append(shape)
    return sorted(found, key=lambda s: s.start)


def every(text: str) -> list[Shape]:
    """Every time, date and id of a text, whatever it is about."""
    found: list[Shape] = []
    for pattern, trait, what in _ANY:
        for match in pattern.finditer(text):
            if not any(s.start < match.end() and match.start() < s.end for s in found):
                found.append(Shape(match.start(), match.end(), trait, what))
    return sorted(found, key=lambda s: s.start)


def changed(text: str, other: str) -> list[Shape]:
    """Those of them that another request has another value for. Nothing where the two differ in more
    than such values."""
    mine, theirs = every(text), every(other)
    if len(mine) != len(theirs) or _without(text, mine) != _without(other, theirs):
        return []
    return [
        a
        for a, b in zip(mine, theirs, strict=True)
        if text[a.start : a.end] != other[b.start : b.end]
    ]


def _without(text: str, found: list[Shape]) -> list[str]:
    bounds = [0, *(x for s in found for x in (s.start, s.end)), len(text)]
    return [text[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)]


def read(
    region: Region, where: str = "in a recorded request", others: Iterable[str] = ()
) -> list[Item]:
    """A recorded text, with holes where values of this call stand. `others` are the texts of other
    requests at the same place."""
    out: list[Item] = []
    at = 0
    known = {s for other in others for s in changed(region.text, other)}
    every_one = [
        *known,
        *(
            s
            for s in shapes(region.text)
            if not any(s.start < k.end and k.start < s.end for k in known)
        ),
    ]
    for shape in sorted(every_one, key=lambda s: s.start):
        if at < shape.start:
            out.append(region.piece(at, shape.start))
        value = region.text[shape.start : shape.end]
        names: dict[str, str] = {"clock": "timestamp", "date": "date", "random_id": "request_id"}
        out.append(
            Hole(
                expr=value,
                name=names[shape.trait],
                level="call",
                slice=region.slice(shape.start, shape.end),
                traits=frozenset({shape.trait}),
                why=f"{shape.what} that differs between requests"
                if shape in known
                else f"{shape.what} {where}",
                known=shape in known,
                example=value,
            )
        )
        at = shape.end
    if at < len(region.text):
        out.append(region.piece(at, len(region.text)))
    return out
