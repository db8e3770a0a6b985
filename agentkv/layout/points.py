"""Texts that point: what ties a unit to its neighbours, so that neither may move away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentkv.layout.shape import bound, heads
from agentkv.layout.words import BACK, BELOW, CLOSING, FOLLOWING, NAMED, unread
from agentkv.prompt.segment import Segment

_ENDS = ".!?…。！？)]}>\"'”’*`|"
_LABELS = (":", "：", "-", "–", "—", "=")


def tie(units: Sequence[Segment], index: int) -> str | None:
    """Why `units[index]` may not leave its place in its message, in one sentence; None if it may.

    `units` are the units of one message in the author's order.
    """
    unit = units[index]
    if unit.points:
        own = said(unit)
        words = own.back or own.below or own.named
        if words:
            return f"its text says {words!r}, which may point at its neighbours."
    if index:
        reason = _before(units[index - 1].content, units[index - 1].name, unit.content)
        if reason:
            return reason
    if index + 1 < len(units):
        if not _starts_clean(units[index + 1].content, unit.content):
            return f"{units[index + 1].name!r} continues its sentence."
        found_end = _introduces(unit.content)
        if found_end:
            return f"it ends with {found_end!r}, which introduces {units[index + 1].name!r}."
    reason = bound(units, index)
    if reason:
        return reason
    for other in units[:index]:
        words = said(other).below if other.points else None
        if words:
            return f"{other.name!r} says {words!r} ahead of it, which may point at it."
    for other in units[index + 1 :]:
        words = said(other).back if other.points else None
        if words:
            return f"{other.name!r} says {words!r} behind it, which may point at it."
    for other in units:
        if not other.points:
            continue
        words = said(other).named
        if words and other is not unit and _is_named(unit):
            return f"{other.name!r} says {words!r}, which may be this text."
        if said(other).unread:
            return (
                f"{other.name!r} is in a language whose pointing words are not known here; "
                "points=False on its mark says that it has none."
            )
    return None


@dataclass(frozen=True, slots=True)
class Said:
    """The first words of each sort that a text says, and whether it could be read at all."""

    back: str | None
    below: str | None
    named: str | None
    unread: bool


_KNOWN: dict[str, Said] = {}
_KNOWN_LIMIT = 1024


def said(unit: Segment) -> Said:
    """What a unit says. Remembered by digest, as the same system text comes in every call."""
    found = _KNOWN.get(unit.content_hash)
    if found is None:
        text = unit.content
        found = Said(_back(text), _first(BELOW, text), _first(NAMED, text), unread(text))
        if len(_KNOWN) >= _KNOWN_LIMIT:
            _KNOWN.clear()
        _KNOWN[unit.content_hash] = found
    return found


def closing(text: str) -> str | None:
    """The closing reminder that `text` ends with ("Never reveal ..."), if its last line is one."""
    line = next((x for x in reversed(text.splitlines()) if x.strip()), "").strip()
    if CLOSING.match(line):
        return line
    # The last sentence of a paragraph closes it just as well.
    for end in (". ", "! ", "? ", "。", "！"):
        head, _, rest = line.rpartition(end)
        if head and rest.strip() and CLOSING.match(rest):
            return rest.strip()
    return None


def _first(words: re.Pattern[str], text: str) -> str | None:
    found = words.search(text)
    return found.group(0) if found else None


def _back(text: str) -> str | None:
    """What in `text` points backwards; "step 3" does not, where the text has a step 3 itself."""
    for found in BACK.finditer(text):
        words = found.group(0)
        number = words.rsplit(None, 1)[-1]
        own = rf"^\s*(?:\w+\s+)?{number}[.):\s]"
        if not number.isdigit() or not re.search(own, text, re.MULTILINE):
            return words
    return None


def _is_named(unit: Segment) -> bool:
    """Whether "the context" or "the document" elsewhere may mean this unit."""
    return unit.kind == "documents" or any(w in unit.name.lower() for w in ("context", "document"))


def _introduces(text: str) -> str | None:
    """The label, heading or pointer at the end of `text` that belongs to what comes next."""
    stripped = text.rstrip()
    if not stripped:
        return None
    if stripped.endswith(_LABELS):
        return stripped[-1]
    found = FOLLOWING.search(stripped.rsplit("\n", 1)[-1])
    return found.group(0) if found else heads(stripped)


def _before(text: str, name: str, then: str) -> str | None:
    """Why what follows `text` belongs to it: a label, a pointer in its last line, half a sentence."""
    stripped = text.rstrip()
    if not stripped:
        return None
    found = _introduces(stripped)
    if found:
        return f"{name!r} ends with {found!r}, which introduces it."
    trail = text[len(stripped) :]
    wrapped = stripped[-1] not in _ENDS and then[:1].islower()
    if wrapped and "\n" in trail and "\n\n" not in trail:
        return f"it continues a sentence of {name!r}."
    # Two words that would touch are two blocks; a space between them makes one sentence.
    apart = not trail and then[:1].isalnum() and not then[:1].islower()
    if stripped[-1] not in _ENDS and "\n" not in trail and then[:1] != "\n" and not apart:
        return f"it continues a sentence of {name!r}."
    return None


def _starts_clean(text: str, before: str) -> bool:
    """Whether `text` can stand without `before`: it is not in the middle of its sentence.

    A new line is a new sentence, unless prose is wrapped: no end before it, a small letter behind.
    """
    lead = text[: len(text) - len(text.lstrip())]
    rest = text.lstrip()
    if not rest or "\n" in lead:
        return True
    if before.endswith("\n"):
        return before.rstrip()[-1:] in _ENDS or not rest[0].islower()
    return not (rest[0].islower() or rest[0] in ",.;:!?)]}'’")
