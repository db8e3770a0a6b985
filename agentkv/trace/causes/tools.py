"""Two lists of tools: another order, another set, another text, or other bytes for the same JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from agentkv.engine.types import Reason
from agentkv.trace.causes.change import Change, Run
from agentkv.trace.causes.text import diff
from agentkv.trace.causes.units import Unit


def tool_changes(old: Sequence[Unit], new: Sequence[Unit]) -> tuple[list[Change], list[Run]]:
    """At most one order or set change; one change for each value inside a definition."""
    keys_a, keys_b = [u.key for u in old], [u.key for u in new]
    if keys_a == keys_b:
        return [], [_run(u) for u in new]
    same = 0
    while same < min(len(old), len(new)) and keys_a[same] == keys_b[same]:
        same += 1
    here = new[same] if same < len(new) else None
    there = old[same] if same < len(old) else None
    at = here.start if here is not None else (new[-1].end if new else 0)
    behind = 0
    while behind < min(len(old), len(new)) - same and keys_a[-1 - behind] == keys_b[-1 - behind]:
        behind += 1
    end = new[len(new) - behind - 1].end if len(new) - behind > same else at
    left = Counter(keys_a)
    runs: list[Run] = []
    for unit in new:
        if left[unit.key] > 0:
            left[unit.key] -= 1
            runs.append(_run(unit))
    names_a, names_b = [u.label for u in old], [u.label for u in new]
    if Counter(names_a) != Counter(names_b) or not all(names_b):
        if Counter(keys_a) == Counter(keys_b):
            return [_change(at, end, "tool_order", "KV501", "reorder", there, here, "")], runs
        if len(old) == len(new) and not all((*names_a, *names_b)):
            return [_change(at, end, "tool_changed", None, "text", there, here, "")], runs
        added = [n or "a tool" for n in _minus(names_b, names_a)]
        gone = [n or "a tool" for n in _minus(names_a, names_b)]
        words = [f"added {', '.join(added[:6])}"] if added else []
        words += [f"removed {', '.join(gone[:6])}"] if gone else []
        detail = "; ".join(words)
        return [_change(at, end, "tool_changed", "KV502", "text", there, here, detail)], runs
    if names_a != names_b:
        detail = ""
        if there is not None and here is not None:
            detail = f"tool {same + 1} was {there.label}, is {here.label}"
        # The same tool may be written with other bytes too: once is enough.
        runs = [_run(u) for u in new] if Counter(keys_a) != Counter(keys_b) else runs
        return [_change(at, end, "tool_order", "KV501", "reorder", there, here, detail)], runs
    changes: list[Change] = []
    for a, b in zip(old, new, strict=True):
        if a.key == b.key:
            continue
        if a.redacted or b.redacted:
            changes.append(_change(b.start, b.end, "tool_changed", None, "text", a, b, ""))
        elif _same_json(a.text, b.text):
            detail = f"the keys of {b.label} stand in another order"
            changes.append(_change(b.start, b.end, "tool_changed", "KV504", "json", a, b, detail))
            runs.append(_run(b))
        else:
            inside, kept = _inside(a, b)
            changes += inside
            runs += kept
    return changes, runs


def _inside(a: Unit, b: Unit) -> tuple[list[Change], list[Run]]:
    result = diff(a.text, b.text)
    changes: list[Change] = []
    for edit in result.edits[:8]:
        rule = "KV504" if edit.kind in ("whitespace", "json") else "KV503"
        changes.append(
            Change(
                b.token_at(edit.at), "tool_changed", rule, edit.kind, "tools", "tools",
                edit.label, edit.was[:160], edit.now[:160], edit.label,
                detail=f"the definition of {b.label} holds a value that changes",
                end=b.token_from(edit.end),
            )
        )  # fmt: skip
    runs = [
        Run(b.token_from(s), b.token_at(e), "tools", whole=False, text=b.text[s : s + 160])
        for s, e in result.runs
        if e - s >= 12
    ]
    return changes, runs


def _run(unit: Unit) -> Run:
    return Run(unit.start, unit.end, "tools", text=unit.text[:160])


def _change(
    at: int,
    end: int,
    reason: Reason,
    rule: str | None,
    kind: str,
    old: Unit | None,
    new: Unit | None,
    detail: str,
) -> Change:
    was, now = (old.text if old else ""), (new.text if new else "")
    if kind == "json":
        first = next((i for i, (x, y) in enumerate(zip(was, now, strict=False)) if x != y), 0)
        first = max(0, first - 40)
        was, now = was[first:], now[first:]
    return Change(
        at, reason, rule, kind, "tools", "tools", "", was[:160], now[:160], detail=detail,
        end=end,
    )  # fmt: skip


def _minus(a: list[str], b: list[str]) -> list[str]:
    left = Counter(b)
    out: list[str] = []
    for name in a:
        if left[name] > 0:
            left[name] -= 1
        else:
            out.append(name)
    return out


def _same_json(a: str, b: str) -> bool:
    try:
        return bool(json.loads(a) == json.loads(b))
    except (ValueError, RecursionError):
        return False
