"""What kind of value a piece of text is: a clock, a date, an id, a number, a name.

`scan` finds the values of a line; `kind_of_change` says what a change from one text to another is.
Nothing here knows where the text came from.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

ValueKind = Literal[
    "clock",
    "date",
    "uuid",
    "id",
    "address",
    "email",
    "path",
    "number",
    "locale",
    "whitespace",
    "unicode",
    "words",
    "text",
]
"""`id`: letters and digits that spell no word. `address`: a `0x7f...` of an object. `words`: up to
`SHORT` words; `text`: more."""

SHORT = 8
LONG = 200
"""Characters; longer texts are no values."""

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "jan",
    "feb",
    "mar",
    "apr",
    "jun",
    "jul",
    "aug",
    "sep",
    "sept",
    "oct",
    "nov",
    "dec",
    "januar",
    "februar",
    "märz",
    "mai",
    "juni",
    "juli",
    "oktober",
    "dezember",
    "mrz",
    "okt",
    "dez",
    "janvier",
    "février",
    "mars",
    "avril",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
    "gennaio",
    "febbraio",
    "aprile",
    "maggio",
    "giugno",
    "luglio",
    "settembre",
    "ottobre",
    "dicembre",
    "janeiro",
    "fevereiro",
    "março",
    "maio",
    "junho",
    "julho",
    "setembro",
    "outubro",
    "dezembro",
]
_DAYS = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "mon",
    "tue",
    "tues",
    "wed",
    "thu",
    "thur",
    "thurs",
    "fri",
    "sat",
    "sun",
    "montag",
    "dienstag",
    "mittwoch",
    "donnerstag",
    "freitag",
    "samstag",
    "sonntag",
    "lundi",
    "mardi",
    "mercredi",
    "jeudi",
    "vendredi",
    "samedi",
    "dimanche",
    "lunes",
    "martes",
    "miércoles",
    "jueves",
    "viernes",
    "sábado",
    "domingo",
    "lunedì",
    "martedì",
    "mercoledì",
    "giovedì",
    "venerdì",
    "sabato",
    "domenica",
]
_LONG_DAYS = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "montag",
    "dienstag",
    "mittwoch",
    "donnerstag",
    "freitag",
    "samstag",
    "sonntag",
    "lundi",
    "mardi",
    "mercredi",
    "jeudi",
    "vendredi",
    "samedi",
    "dimanche",
    "lunes",
    "martes",
    "miércoles",
    "jueves",
    "viernes",
    "sábado",
    "domingo",
    "lunedì",
    "martedì",
    "mercoledì",
    "giovedì",
    "venerdì",
    "sabato",
    "domenica",
]
_MONTH = r"(?:{})\.?".format("|".join(sorted(set(_MONTHS), key=len, reverse=True)))
_DAY = r"(?:{})\.?".format("|".join(sorted(set(_DAYS), key=len, reverse=True)))

_TIME = (
    r"(?:[01]?\d|2[0-4])(?::[0-5]\d){1,2}(?:[.,]\d+)?(?:\s?(?:[ap]m\b|[ap]\.m\.))?"
    r"(?:\s?(?:Z|UTC|GMT|CES?T|[ECMP][SD]T|[+-]\d\d:?\d\d)\b)?"
    r"|(?:1[0-2]|0?[1-9])\s?(?:[ap]m\b|[ap]\.m\.)"
    r"|(?:[01]?\d|2[0-3])\s?h\s?[0-5]\d\b"
    r"|(?:[01]?\d|2[0-3])(?:[.:][0-5]\d)?\s?Uhr(?:\s[0-5]\d)?\b"
)
_DATE = (
    r"\d{4}[-/.](?:1[0-2]|0?[1-9])[-/.](?:3[01]|[12]\d|0?[1-9])(?!\d)"
    r"|(?:3[01]|[12]\d|0?[1-9])[-/.](?:3[01]|[12]\d|0?[1-9])[-/.](?:\d{4}|\d\d)(?![\d.])"
    rf"|(?:{_DAY},?\s+)?{_MONTH}\s+(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?\b"
    rf"|(?:{_DAY},?\s+)?(?:the\s+)?(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th|\.|er|º)?"
    rf"(?:\s+(?:of|de))?[\s-]+{_MONTH}(?:(?:,|\s+de)?[\s-]+\d{{4}})?\b"
    rf"|{_MONTH}\s+(?:19|20)\d\d\b"
    r"|\d{4}年\d{1,2}月\d{1,2}日"
    rf"|\b{_DAY}(?=[\s,.;)]|$)"
)
_TEMPORAL = re.compile(
    rf"(?<![\w.])(?P<date>{_DATE})(?:(?:,?\s+(?:at|um|à|a las|@)\s+|[T\s,|]{{1,3}}\s?)(?P<time1>{_TIME}))?"
    rf"|(?<![\w.:])(?P<time2>{_TIME})(?![\w:])"
    r"|(?<!\d)(?P<time3>(?:[01]?\d|2[0-3])\s?[时時点點시]\s?(?:[0-5]?\d\s?[分분])?)"
    r"|(?<!\d)(?P<stamp>20\d\d(?:1[0-2]|0[1-9])(?:3[01]|[12]\d|0[1-9])[T_-]?\d{4,6}Z?)(?!\d)"
    r"|(?<![\d.,])(?P<epoch>(?:1[5-9]|2[01])\d{8}(?:\d{3}|\.\d+|\d{6})?)(?![\d])",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_WEEKDAY = re.compile(rf"\b{_DAY}", re.IGNORECASE)
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/])(?:/[\w.@+-]+){2,}/?|\b[A-Z]:\\[\w\\. -]+")
_TOKEN = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*={0,2}")
_NUMBER = re.compile(r"[+-]?\d+(?:[ \u00a0\u202f.,'’]\d+)*%?")
_NO_WORD = re.compile(r"(?i)[bcdfghjkmnpqrstvwxz]{6}")
_NUMBERED_WORD = re.compile(r"[A-Za-z]{2,}[-_ ]?\d{1,6}$")


LONG = 400
"""Characters of a text that is no single value, whatever is in it."""

WINDOW = 120
"""Characters around a place within which the value that holds it begins and ends."""


@dataclass(frozen=True, slots=True)
class Value:
    """Characters `[start, end)` of a line, and what they are."""

    start: int
    end: int
    kind: ValueKind


@lru_cache(maxsize=65536)
def is_id(word: str) -> bool:
    """Letters and digits mixed as no word does: `8f3kd02`, `req_01HZX3`, `a9f3c1`."""
    bare = word.strip("=").replace("-", "").replace("_", "")
    digits = sum(c.isdigit() for c in bare)
    letters = len(bare) - digits
    if len(bare) >= 8 and digits and letters and re.fullmatch(r"(?i)[0-9a-f]+", bare):
        return True
    if not digits and len(bare) >= 10 and _NO_WORD.search(bare):
        return True
    if len(bare) < 6 or not digits or not letters or _NUMBERED_WORD.fullmatch(word):
        return bool(re.fullmatch(r"(?i)[a-z]{2,8}[-_]?\d{7,}", word))
    # Changes between letters and digits: a version or `user42` has one, an id has several.
    changes = sum(a.isdigit() != b.isdigit() for a, b in itertools.pairwise(bare))
    return changes >= 2 or bool(re.fullmatch(r"(?i)[0-9a-f]{7,}", bare))


@lru_cache(maxsize=8192)
def scan(line: str) -> tuple[Value, ...]:
    """The values of a line that have a shape, left to right, without overlap."""
    found: list[Value] = []

    def free(start: int, end: int) -> bool:
        return all(end <= v.start or start >= v.end for v in found)

    digits = bool(_DIGIT.search(line))
    shapes: tuple[tuple[re.Pattern[str], ValueKind, bool], ...] = (
        (_UUID, "uuid", digits),
        (_EMAIL, "email", "@" in line),
        (_ADDRESS, "address", digits),
    )
    for pattern, kind, likely in shapes:
        for m in pattern.finditer(line) if likely else ():
            if free(*m.span()):
                found.append(Value(*m.span(), kind))
    if digits or _WEEKDAY.search(line):
        for m in _TEMPORAL.finditer(line):
            if free(*m.span()):
                clock = m["time1"] or m["time2"] or m["time3"] or m["stamp"] or m["epoch"]
                found.append(Value(*m.span(), "clock" if clock else "date"))
    if "/" in line or "\\" in line:
        for m in _PATH.finditer(line):
            if free(*m.span()):
                found.append(Value(*m.span(), "path"))
    for m in _TOKEN.finditer(line):
        if is_id(m[0]) and free(*m.span()):
            found.append(Value(*m.span(), "id"))
    for m in _NUMBER.finditer(line) if digits else ():
        before = line[m.start() - 1] if m.start() else " "
        if not before.isalnum() and free(*m.span()):
            found.append(Value(*m.span(), "number"))
    return tuple(sorted(found, key=lambda v: v.start))


def around(line: str, start: int, end: int) -> Value | None:
    """The value that holds `[start, end)` of a line; None where no shaped value does."""
    if end - start > LONG:
        return None
    # A line may be a page long: only the words around the place are looked at.
    low = line.rfind(" ", 0, max(0, start - WINDOW)) + 1 if start > WINDOW else 0
    high = line.find(" ", end + WINDOW)
    for value in scan(line[low : high if high >= 0 else len(line)]):
        if value.start + low <= start and end <= value.end + low and start < value.end + low:
            return Value(value.start + low, value.end + low, value.kind)
    return None


# -- equal but for ... -----------------------------------------------------------------------------

_LOOKALIKE = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-",
        "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u200b": None, "\u200c": None, "\u200d": None,
        "\ufeff": None, "\u00ad": None, "\u2011": "-", "\u2026": "...",
    }
)  # fmt: skip


def blanks_out(text: str) -> str:
    """The text without any white space."""
    return "".join(text.split())


def plain(text: str) -> str:
    """The text in one Unicode form, look-alike and invisible characters replaced."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).translate(_LOOKALIKE)


def common(a: str, b: str) -> int:
    """Length of the longest common prefix of two texts."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        mid = (low + high + 1) // 2
        if a[low:mid] == b[low:mid]:
            low = mid
        else:
            high = mid - 1
    return low


def part(one: str, other: str) -> bool:
    """Whether two texts cannot be one text written in two ways, since after an equal beginning one
    goes on with `one` and the other with `other`: two letters of ASCII that are not the same."""
    return one != other and all(c.isascii() and c.isalnum() for c in (one, other))


_MONTH_NUMBER = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar janvier enero gennaio janeiro",
            "february feb februar février febrero febbraio fevereiro",
            "march mar märz mrz mars marzo março",
            "april apr avril abril aprile",
            "may mai mayo maggio maio",
            "june jun juni juin junio giugno junho",
            "july jul juli juillet julio luglio julho",
            "august aug août agosto",
            "september sep sept septembre septiembre settembre setembro",
            "october oct oktober okt octobre octubre ottobre outubro",
            "november nov novembre noviembre novembro",
            "december dec dezember dez décembre diciembre dicembre dezembro",
        ),
        1,
    )
    for name in names.split()
}
_NO_PART = frozenset(["de", "of", "um", "uhr", "at", "th", "年", "月", "日", "년", "월", "일"])
"""Words of a date that are no part of its value."""
_DAY_NUMBER = {name: i % 7 for i, name in enumerate(_LONG_DAYS)}
_WORD_OR_NUMBER = re.compile(r"[^\W\d_]+|\d+")
_SMALL_SEPARATORS = re.compile(r"(?<=\d)[ \u00a0\u202f.,'’](?=\d{3}(?!\d))")
_YEAR_FIRST = re.compile(r"(?<!\d)\d{4}-\d\d?-\d\d?(?!\d)")
_CURRENCY = re.compile(r"(?i)[$€£¥%]|\b(?:usd|eur|gbp|chf)\b")


def same_but_locale(old: str, new: str) -> bool:
    """Whether two values say the same number or date in the formats of two places."""
    if old == new or (_YEAR_FIRST.search(old) and _YEAR_FIRST.search(new)):
        return False
    days = [_DAY_NUMBER.get(t.strip(" ,.").lower()) for t in (old, new)]
    if None not in days:
        return days[0] == days[1]
    if old in new or new in old:
        return False  # something was added, or cut off
    a, b = _figures(old), _figures(new)
    return bool(a) and a == b


def _figures(text: str) -> tuple[str, ...]:
    """The numbers of a value in an order that no format changes: grouping dropped, month names as
    numbers, parts of dates sorted; () where there are none, or words that are no part of a date."""
    text = _CURRENCY.sub(" ", text)
    parts: list[str] = []
    pm = bool(re.search(r"(?i)\d\s?p\.?m\b", text))
    text = re.sub(r"(?i)(?<=\d)\s?[ap]\.?m\b\.?", " ", text)
    for date in _WORD_OR_NUMBER.finditer(text):
        word = date[0].lower()
        if word.isdigit():
            continue
        if word in _MONTH_NUMBER or word in _DAYS or word in _NO_PART:
            continue
        return ()
    bare = _SMALL_SEPARATORS.sub("", text)
    for m in _WORD_OR_NUMBER.finditer(bare):
        word = m[0].lower()
        if word.isdigit():
            parts.append(word.lstrip("0") or "0")
        elif word in _MONTH_NUMBER:
            parts.append(str(_MONTH_NUMBER[word]))
    if pm and parts:
        hour = re.search(r"(?<!\d)(\d{1,2}):\d\d", text)
        if hour and int(hour[1]) < 12:
            parts[parts.index(hour[1].lstrip("0") or "0")] = str(int(hour[1]) + 12)
    # A year of two digits is the end of one of four.
    parts = [p[2:] if len(p) == 4 and p[:2] in ("19", "20") else p for p in parts]
    return tuple(sorted(p for p in parts if p != "0"))


def kind_of_change(old: str, new: str) -> ValueKind:
    """What a value is that was `old` and is `new`; the less telling of the two when they differ."""
    a, b = old.strip(), new.strip()
    long = min(len(a), len(b)) > LONG
    if long and abs(len(a) - len(b)) > 0.3 * max(len(a), len(b)):
        return "text"
    if long and part(a[(k := common(a, b)) : k + 1], b[k : k + 1]):
        return "text"
    if blanks_out(old) == blanks_out(new):
        return "whitespace"
    if blanks_out(plain(a)) == blanks_out(plain(b)):
        return "unicode"
    if long:
        return "text"
    if same_but_locale(a, b):
        return "locale"
    kinds = [kind_of(t) for t in (a, b) if t]
    if not kinds:
        return "words"
    if len(set(kinds)) == 1:
        return kinds[0]
    for weak in ("text", "words", "number", "id", "date"):
        if weak in kinds:
            # "2 minutes past" beside a clock is no clock; a date beside a clock is a clock.
            return "clock" if weak == "date" and "clock" in kinds else weak
    return kinds[0]


@lru_cache(maxsize=8192)
def kind_of(text: str) -> ValueKind:
    """What a whole value is."""
    text = text.strip().strip("\"'`()[]<>{}").strip()
    if len(text) > LONG:
        return "text"
    values = scan(text)
    if len(values) == 1 and values[0].start <= 2 and values[0].end >= len(text) - 2:
        return values[0].kind
    words = text.split()
    shaped = sum(v.end - v.start for v in values)
    if values and shaped >= 0.8 * len(text.replace(" ", "")):
        kinds = {v.kind for v in values}
        for strong in ("clock", "date", "uuid", "id", "email", "address", "path"):
            if strong in kinds:
                return strong
        return "number"
    return "words" if len(words) <= SHORT else "text"
