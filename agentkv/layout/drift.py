"""Sentences about input that defeats reuse: drifting tools, texts marked static that change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentkv.engine.text.canonical import first_difference
from agentkv.layout.churn import Churn
from agentkv.prompt.segment import Segment, stability_rank
from agentkv.prompt.tools import Tool

_FIXED = stability_rank("user")
_LASTING = stability_rank("session")


def tool_drift(old: Tool, new: Tool, *, where: str) -> str:
    """What to say about a tool that had another definition `where` ("in this session")."""
    before, after = json.loads(old.text), json.loads(new.text)
    path = first_difference(before, after) or "$"
    hint = ""
    if only_order(old, new):
        hint = (
            " Only the order differs: a set or an unordered mapping feeds it. Build it from a list, "
            "or sort it."
        )
    return (
        f"tool {new.name!r} had other bytes {where} ({old.content_hash} then, {new.content_hash} "
        f"now): first difference at {path}. All that stands behind it is computed again.{hint}"
    )


def only_order(old: Tool, new: Tool) -> bool:
    """Whether two definitions hold the same, in another order of keys or of list items."""
    return old.text != new.text and _sorted(json.loads(old.text)) == _sorted(json.loads(new.text))


def static_drift(units: Sequence[Segment], known: dict[str, Churn]) -> list[str]:
    """Units that are marked as lasting and changed in this call, not for the first time."""
    out = []
    for unit in units:
        churn = known.get(unit.name)
        if churn is None or not unit.declared or not churn.fresh:
            continue
        rank = stability_rank(unit.stability)
        slow = rank <= _FIXED
        if not slow and not (rank == _LASTING and churn.share >= 0.5):
            continue
        if churn.changed < 2:
            continue
        diff = f"line {churn.line + 1}: "
        diff += f"- {churn.was!r} + {churn.now!r}" if churn.was else f"+ {churn.now!r}"
        out.append(
            f"{unit.name!r} is marked static (stability {unit.stability}) but changed in "
            f"{churn.changed} of {churn.calls} calls; {diff}. Mark it volatile()."
        )
    return out


def tool_churn(churn: Churn, tokens_behind: int) -> str | None:
    """What to say when the set of tools changed in this call, not for the first time."""
    if not churn.fresh or churn.changed < 2:
        return None
    return (
        f"the set of tools changed in {churn.changed} of {churn.calls} calls; each time about "
        f"{tokens_behind:,} tokens behind the tools are computed again. Keep the whole set, and "
        "say by tool_choice (allowed tools) which may be called."
    )


def _sorted(value: Any) -> str:
    """A form that is the same for the same content in any order."""
    if isinstance(value, dict):
        return (
            "{" + ",".join(sorted(f"{json.dumps(k)}:{_sorted(v)}" for k, v in value.items())) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(sorted(_sorted(v) for v in value)) + "]"
    return json.dumps(value)
