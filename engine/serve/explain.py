"""What a chat template did to a conversation: what it left out, and what it moved.

A template may drop the thoughts of earlier turns, or put a system message from the middle to the
front, where everything behind it changes. Whoever wonders why a prefix is not reused can ask.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from agentkv.engine.types import RenderedPrompt

_NAME = re.compile(r"messages\[(\d+)\](?:#\d+)?")
_THOUGHTS = ("reasoning_content", "reasoning")


def dropped(messages: Sequence[Mapping[str, Any]], prompt: RenderedPrompt) -> list[str]:
    """Paths of texts in the request that are not in the prompt."""
    out = []
    for index, message in enumerate(messages):
        for name, text in _texts(message):
            if not _stands(text.strip(), prompt.text):
                out.append(f"messages[{index}].{name}")
    return out


def moved(prompt: RenderedPrompt) -> list[str]:
    """The messages that do not stand where the request has them: the fewest that, taken away,
    leave the others in order."""
    order: list[int] = []
    for span in prompt.spans:
        found = _NAME.fullmatch(span.name)
        if found and int(found.group(1)) not in order:
            order.append(int(found.group(1)))
    kept = _longest_rise(order)
    return [f"messages[{index}]" for index in sorted(set(order) - kept)]


def _stands(text: str, prompt: str) -> bool:
    """Whether a text is in the prompt: as it is, or as JSON (some templates quote results)."""
    return text in prompt or any(
        json.dumps(text, ensure_ascii=ascii)[1:-1] in prompt for ascii in (False, True)
    )


def _texts(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    content = message.get("content")
    out = [(name, message[name]) for name in _THOUGHTS if isinstance(message.get(name), str)]
    if isinstance(content, str):
        out.append(("content", content))
    elif isinstance(content, Sequence):
        for i, part in enumerate(content):
            text = part if isinstance(part, str) else part.get("text")
            if isinstance(text, str):
                out.append((f"content[{i}]", text))
    return out


def _longest_rise(order: Sequence[int]) -> set[int]:
    """The members of a longest rising subsequence."""
    ends: list[int] = []
    places: list[int] = []
    for value in order:
        place = bisect_left(ends, value)
        ends[place : place + 1] = [value]
        places.append(place)
    out: set[int] = set()
    want = len(ends) - 1
    for value, place in zip(reversed(order), reversed(places), strict=True):
        if place == want:
            out.add(value)
            want -= 1
    return out
