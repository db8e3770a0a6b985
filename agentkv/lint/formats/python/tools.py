"""How the tools of a request come to be."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.facts import Facts, join, rank
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.values import Dict, Made, Many, Obj, Str, Thing, Value, walk
from agentkv.lint.source import Slice
from agentkv.lint.template import ToolsUse

_WHO = frozenset(
    ["state", "user", "current_user", "customer", "request", "session", "turn", "step"]
)
"""A test of one of these is asked anew for each user, or in each turn."""


def tools_use(value: Value, node: ast.expr | None, frame: Base) -> ToolsUse | None:
    """None where a request has no tools."""
    if value == NONE or node is None:
        return None
    where = frame.module.where(node)
    facts = _facts(value)
    detail = "a set" if "set_order" in facts.traits and facts.why == "literal" else facts.why
    filtered = False
    conditions = _conditions(value)
    if conditions:
        test = join(conditions)
        # A test of what is fixed at start filters nothing from call to call.
        if test.level not in ("build", "deploy"):
            filtered = True
            detail = f"depends on {test.why or ', '.join(test.reads)}"
            facts = join([facts, replace(test, known=test.known)])
        facts = facts.minus("conditional")
    elif "conditional" in facts.traits and rank(facts.level) > rank("deploy"):
        filtered = True
    if isinstance(value, Thing) and re.search(
        r"(?:select|filter|relevant|choose|pick|allowed|retrieve)\w*tools|tools_for|top_tools",
        value.name,
    ):
        filtered = True
        detail = detail or f"`{value.name}`"
    elif isinstance(value, Thing) and "question" in facts.traits:
        filtered = filtered or rank(facts.level) > rank("unknown")
    dynamic = _dynamic(value)
    if dynamic is not None:
        detail = f"a schema holds {dynamic.why or 'a run-time value'}"
        facts = join([facts, dynamic])
    return ToolsUse(
        slice=Slice(where.start, where.end),
        traits=facts.traits,
        filtered=filtered,
        dynamic_schema=dynamic is not None,
        level=facts.level,
        detail=detail,
    )


def _facts(value: Value) -> Facts:
    if isinstance(value, Many):
        parts = [_facts(i.value) for i in value.items]
        parts += [i.loop for i in value.items if i.loop]
        base = join(parts)
        if value.extra:
            base = join([base, value.extra])
        return base.plus("set_order") if value.kind == "set" else base
    if isinstance(value, Made | Obj):
        return Facts("build", why="an object made in code", known=True)
    if isinstance(value, Thing) and "listing" in value.facts.traits:
        return value.facts
    return value.facts


def _conditions(value: Value) -> list[Facts]:
    if isinstance(value, Many):
        # Each tool was asked for, or the test is one of who calls; a switch of which nothing is known
        # may be thrown once.
        found = [
            i.cond
            for i in value.items
            if i.cond is not None
            and (
                "conditional" in i.cond.traits
                or rank(i.cond.level) > rank("unknown")
                or _WHO & set(i.cond.reads)
            )
        ]
        for i in value.items:
            found += _conditions(i.value) if isinstance(i.value, Many) else []
        return found
    if isinstance(value, Thing) and "conditional" in value.facts.traits:
        return [value.facts]
    return []


def _dynamic(value: Value) -> Facts | None:
    """What varies in the schemas, if anything is seen to."""
    for inner in walk(value):
        if not isinstance(inner, Dict):
            continue
        for e in inner.entries:
            if e.key not in ("description", "enum", "default", "title", "name"):
                continue
            facts = e.value.facts
            if "tools" in facts.traits:
                continue  # a server's own words
            if isinstance(e.value, Str | Many | Thing) and rank(facts.level) > rank("deploy"):
                if facts.level == "unknown" and not (
                    isinstance(e.value, Thing | Many) and e.key in ("enum", "description")
                ):
                    continue
                if facts.level == "unknown" and e.key != "enum":
                    continue
                return facts
    return None
