"""Texts that point: which words tie a unit to its neighbours, so that neither may move away.

The lists are English and err on the safe side: a needless refusal costs tokens, a wrong move costs
meaning. An author who knows better says `points=False` on the mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentkv.prompt.segment import Segment

_NOUN = (
    r"(?:instructions?|messages?|sections?|texts?|context|rules?|paragraphs?|lines?|information|"
    r"content|blocks?|documents?|passages?|lists?|tables?|examples?|steps?|notes?|prompts?|parts?|"
    r"data|values?|items?|sentences?|points?|details)"
)
_BACK = re.compile(
    rf"\b(?:(?<!over and )above(?!\s*(?:all\b|average|[\d$€£])|[-\s]board)"
    rf"|(?:previous|preceding|prior|earlier|former|last)\s+{_NOUN}"
    rf"|(?:ignore|disregard|forget|override|overrides|overriding)\s+(?:\w+\s+){{0,3}}?"
    rf"(?:previous|preceding|prior|earlier|rest|everything|instructions?|rules?)"
    rf"|aforementioned|foregoing|(?:mentioned|described|stated|given|shown|listed|said)\s+"
    rf"(?:earlier|before|previously)|tak(?:e|es|ing)\s+(?:priority|precedence)\s+over|"
    rf"this\s+(?:document|context|block|section))\b",
    re.IGNORECASE,
)
_BELOW = re.compile(
    r"\bbelow(?!\s*(?:[\d$€£]|average|zero|freezing))\b|\b(?:next|subsequent)\s+" + _NOUN,
    re.IGNORECASE,
)
_FOLLOWING = re.compile(r"\b(?:following|as follows|here (?:is|are)|these are)\b", re.IGNORECASE)
_ENDS = ".!?…。！？)]}>\"'”’*`|"


def tie(units: Sequence[Segment], index: int) -> str | None:
    """Why `units[index]` may not leave its place in its message, in one sentence; None if it may.

    `units` are the units of one message in the author's order.
    """
    unit = units[index]
    if unit.points:
        found = _BACK.search(unit.content) or _BELOW.search(unit.content)
        if found:
            return f"its text says {found.group(0)!r}, which may point at its neighbours."
    if index:
        reason = _before(units[index - 1].content, units[index - 1].name, unit.content)
        if reason:
            return reason
    if index + 1 < len(units) and not _starts_clean(units[index + 1].content):
        return f"{units[index + 1].name!r} continues its sentence."
    for other in units[:index]:
        found = _BELOW.search(other.content) if other.points else None
        if found:
            return f"{other.name!r} says {found.group(0)!r} ahead of it, which may point at it."
    for other in units[index + 1 :]:
        found = _BACK.search(other.content) if other.points else None
        if found:
            return f"{other.name!r} says {found.group(0)!r} behind it, which may point at it."
    return None


def _before(text: str, name: str, then: str) -> str | None:
    """Why what follows `text` belongs to it: a label, a pointer in its last line, half a sentence."""
    stripped = text.rstrip()
    if not stripped:
        return None
    if stripped.endswith((":", "：", "-", "–", "—", "=")):
        return f"{name!r} ends with {stripped[-1]!r}, which introduces it."
    last = stripped.rsplit("\n", 1)[-1]
    found = _FOLLOWING.search(last)
    if found:
        return f"{name!r} ends with {found.group(0)!r}, which introduces it."
    trail = text[len(stripped) :]
    # Two words that would touch are two blocks; a space between them makes one sentence.
    apart = not trail and then[:1].isalnum() and not then[:1].islower()
    if stripped[-1] not in _ENDS and "\n" not in trail and then[:1] != "\n" and not apart:
        return f"it continues a sentence of {name!r}."
    return None


def _starts_clean(text: str) -> bool:
    """Whether `text` can stand without what was before it: a new line, or not mid-sentence."""
    lead = text[: len(text) - len(text.lstrip())]
    rest = text.lstrip()
    if not rest or "\n" in lead:
        return True
    return not (rest[0].islower() or rest[0] in ",.;:!?)]}'’")
