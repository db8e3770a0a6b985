"""What the layout adds to a miss that the engine found: it knows why a text stood where it stood.

The engine compares two prompts token by token and names the segment; the layout knows which units
the caller declared, and which of them it had to leave. Only what is certain is added.
"""

from __future__ import annotations

from agentkv.layout.arrangement import Arrangement
from agentkv.report.parts import MissUse

_ADVICE_OFF = {
    "tool_order": 'layout="canonical" keeps tools in one order.',
    "document_order": 'layout="static_first" with a session keeps documents where they were.',
}


def advise(miss: MissUse, arrangement: Arrangement) -> str | None:
    """One sentence that helps, where the cause and the remedy are certain; else None."""
    if miss.reason in _ADVICE_OFF:
        settled = arrangement.level == "static_first" or (
            arrangement.level == "canonical" and miss.reason == "tool_order"
        )
        return None if settled else _ADVICE_OFF[miss.reason]
    if miss.reason == "evicted":
        return "the pool is too small for what is in use: raise pool_tokens."
    if miss.reason != "text_changed" or miss.segment is None:
        return None
    unit = next((u for u in arrangement.order if u.name == miss.segment), None)
    if unit is None or unit.role not in ("system", "developer"):
        return None
    left = next((r.reason for r in arrangement.refused if r.name == unit.name), None)
    if left is not None:
        return f"{unit.name!r} changes by the call and was left where it is: {left}"
    if not unit.declared:
        return "if a part of this text changes by the call, mark it with volatile()."
    if arrangement.level != "static_first" and unit.kind != "documents":
        return f'layout="static_first" moves {unit.name!r} behind what does not change.'
    return None
