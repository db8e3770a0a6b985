"""A module's own values, as functions see them: computed once, when it was imported."""

from __future__ import annotations

from dataclasses import replace

from agentkv.lint.formats.python.bits import Bits, Slot
from agentkv.lint.formats.python.facts import Facts
from agentkv.lint.formats.python.values import (
    Dict,
    Entry,
    Many,
    Str,
    Thing,
    Value,
)


def imported(value: Value) -> Value:
    """A module's own value, as functions see it: computed once, when it was imported."""
    return _imported_value(value)


def _imported_value(value: Value) -> Value:
    if isinstance(value, Str):
        return Str(_imported_bits(value.bits), value.use, value.name)
    if isinstance(value, Thing) and value.facts.known and _varies(value.facts):
        return replace(value, facts=_at_import(value.facts))
    if isinstance(value, Many):
        items = tuple(replace(i, value=_imported_value(i.value)) for i in value.items)
        return replace(value, items=items)
    if isinstance(value, Dict):
        return Dict(
            tuple(Entry(e.key, _imported_value(e.value), e.where) for e in value.entries),
            value.where,
        )
    return value


def _imported_bits(bits: Bits) -> Bits:
    return tuple(
        replace(b, facts=_at_import(b.facts), inner=_imported_bits(b.inner))
        if isinstance(b, Slot) and b.facts.known and _varies(b.facts)
        else b
        for b in bits
    )


def _varies(facts: Facts) -> bool:
    return facts.level in ("turn", "call", "session") and "import_time" not in facts.traits


def _at_import(facts: Facts) -> Facts:
    return replace(
        facts.plus("import_time").minus("reencoded"),
        level="deploy",
        why=f"{facts.why}, when imported",
    )


def computed(bits: Bits) -> Bits:
    """A text that a module makes itself: its clocks and random numbers are read once."""
    return tuple(
        replace(b, facts=_at_import(b.facts), inner=computed(b.inner))
        if isinstance(b, Slot)
        and b.facts.known
        and b.facts.traits & {"clock", "date", "random_id", "random_content"}
        and not b.facts.traits & {"callable_partial", "import_time"}
        else b
        for b in bits
    )
