"""Marks that say, in the prompt itself, what a piece of text is: `static()` and `volatile()`.

A mark is an ordinary text part (`{"type": "text", "text": ..., "agentkv": {...}}`), so it works in
a LangChain message, in an OpenAI-style message dict and on the wire to `agentkv serve`:

    SystemMessage([static("You are a support agent."), volatile("Now: 12:03", name="clock")])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from agentkv.prompt.segment import kind_rank, stability_rank

KEY = "agentkv"


class Mark(TypedDict, total=False):
    """What a marked part says about its text."""

    name: str
    kind: str
    stability: str
    items: list[str]
    points: bool


def _part(text: str, mark: Mark) -> dict[str, Any]:
    if not isinstance(text, str):
        raise TypeError(f"a mark takes a string, got {type(text).__name__}.")
    kind_rank(mark["kind"])
    stability_rank(mark["stability"])
    return {"type": "text", "text": text, KEY: dict(mark)}


def static(
    text: str,
    name: str = "",
    *,
    kind: str = "instructions",
    stability: str = "build",
    points: bool = True,
) -> dict[str, Any]:
    """A text that stays the same: it may be laid ahead of everything that changes.

    `name` is how reports call it (default: its kind). `stability` says how long it lasts, `build`
    (a literal) to `session`. `points=False` promises that words such as "above" in it refer to
    nothing outside it; without that promise such a text stays where it is.
    """
    mark: Mark = {"name": name or kind, "kind": kind, "stability": stability}
    if not points:
        mark["points"] = False
    return _part(text, mark)


def volatile(
    text: str,
    name: str = "",
    *,
    kind: str = "context",
    stability: str = "call",
    points: bool = True,
) -> dict[str, Any]:
    """A text that changes: from call to call (the default), or with `stability` more slowly.

    In a system message, text of stability `turn` or `call` may be moved to a labelled block at the
    end of the prompt; slower text (`session`, `user`) goes to the end of the system message.
    """
    mark: Mark = {"name": name or kind, "kind": kind, "stability": stability}
    if not points:
        mark["points"] = False
    return _part(text, mark)


def mark_of(part: Mapping[str, Any]) -> Mark | None:
    """The mark of a content part, if it has one. Typed blocks carry it under `extras`."""
    found = part.get(KEY)
    if found is None:
        extras = part.get("extras")
        found = extras.get(KEY) if isinstance(extras, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    mark: Mark = {
        "name": str(found.get("name") or found.get("kind") or "context"),
        "kind": str(found.get("kind") or "context"),
        "stability": str(found.get("stability") or "call"),
    }
    if found.get("items"):
        mark["items"] = [str(item) for item in found["items"]]
    if found.get("points") is False:
        mark["points"] = False
    return mark
