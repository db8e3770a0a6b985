"""The tools of a prompt: one form, one order, and those of the session that stay in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.layout.arrangement import Move
from agentkv.layout.drift import tool_churn
from agentkv.layout.learn import tokens
from agentkv.layout.memory import Memory
from agentkv.layout.site import Seen
from agentkv.prompt.prompt import Prompt, tool_segment
from agentkv.prompt.segment import Segment
from agentkv.prompt.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools as they are sent, their units in that order, and the names that may be called
    (None: all)."""

    definitions: tuple[Mapping[str, Any], ...]
    units: tuple[Segment, ...]
    allowed: tuple[str, ...] | None = None


def settle(
    prompt: Prompt,
    memory: Memory | None,
    session: str,
    seen: Seen,
    moves: list[Move],
    remember: bool,
    *,
    keep: bool,
    order: str,
) -> ToolSet:
    """The tools of a call. With `keep`, tools that this place of the session had before stay, with
    the definition that they had last."""
    given = prompt.read_tools
    names = [t.name for t in given]
    allowed: tuple[str, ...] | None = None
    tools: Sequence[Tool] = given
    if keep:
        absent = [t for name, t in seen.tools.items() if name not in set(names)]
        if absent:
            tools = (*given, *absent)
            allowed = tuple(dict.fromkeys(names))
            moves.extend(Move(f"tools.{t.name}", "kept") for t in absent)
    all_names = [t.name for t in tools]
    if memory is not None:
        by_name = order == "name"
        places = memory.tools(session, all_names, keep=remember, by_name=by_name)
    elif order == "name":
        places = sorted(range(len(tools)), key=lambda i: all_names[i])
    else:
        places = list(range(len(tools)))
    if [i for i in places if i < len(given)] != list(range(len(given))):
        moves.append(Move("tools", "stable_order"))
    own = prompt.tool_segments
    return ToolSet(
        tuple(tools[i].definition for i in places),
        tuple(own[i] if i < len(own) else tool_segment(tools[i]) for i in places),
        allowed,
    )


def warnings(seen: Seen, order: Sequence[Segment], kept: bool) -> tuple[str, ...]:
    """What to say about a set of tools that changes by the call and is not kept in the prompt."""
    if kept or not seen.toolset.fresh:
        return ()
    behind = sum(tokens(unit) for unit in order if unit.kind != "tools")
    said = tool_churn(seen.toolset, behind)
    return (said,) if said else ()
