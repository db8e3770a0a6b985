"""Two prompts of one conversation that only grew, and whose tokens part all the same: the chat
template did it. What exactly is read with the engine's own comparison (`engine.why.compare`)."""

from __future__ import annotations

from agentkv.engine.why import Earlier, compare
from agentkv.trace.causes.change import Change, Comparison, Run
from agentkv.trace.causes.memory import Past
from agentkv.trace.causes.units import units


def by_template(past: Past, previous: Past, shared: int) -> Comparison | None:
    """None when the request itself changed. No changes: the prompts only part at their open end.

    `shared`: tokens in common from the start, fewer than the previous prompt has.
    """
    old, new = previous.call.parts, past.call.parts
    if len(new) < len(old) or any(a.key != b.key for a, b in zip(old, new, strict=False)):
        return None
    if previous.call.settings != past.call.settings:
        return None
    seen = compare(past.rendered.prompt, Earlier(previous.ids, previous.rendered.prompt.spans))
    if seen.reason not in ("template", "reasoning_stripped"):
        return Comparison((), ())
    before = {(u.name, *u.identity) for u in units(previous.call, previous.rendered)}
    runs: list[Run] = []
    for unit in units(past.call, past.rendered):
        if (unit.name, *unit.identity) in before and unit.end > shared:
            runs.append(Run(max(unit.start, shared), unit.end, unit.role, text=unit.text[:160]))
    stripped = any(p.kind == "reasoning" for part in old for p in part.pieces)
    at = next((s.name for s in past.rendered.prompt.spans if s.start <= shared < s.end), "template")
    change = Change(
        shared, "template", "KV603" if stripped else "KV602", "text",
        at, "system", detail=seen.detail or "",
    )  # fmt: skip
    return Comparison((change,), tuple(runs))
