"""A function's result with its parameters replaced by what a call gave."""

from __future__ import annotations

from dataclasses import replace

from agentkv.lint.formats.python.bits import Bits, Slot, change, tight
from agentkv.lint.formats.python.values import (
    Dict,
    Entry,
    Made,
    Many,
    Str,
    Thing,
    Value,
    as_bits,
)


def substitute(value: Value, owner: str, bound: dict[str, Value]) -> Value:
    """A function's result with its parameters replaced by what a call gave."""
    if isinstance(value, Str):
        return Str(substitute_bits(value.bits, owner, bound), value.use, value.name)
    if isinstance(value, Thing):
        if value.param is not None and value.param.owner == owner and value.param.name in bound:
            return bound[value.param.name]
        return value
    if isinstance(value, Many):
        return replace(
            value,
            items=tuple(replace(i, value=substitute(i.value, owner, bound)) for i in value.items),
        )
    if isinstance(value, Dict):
        return Dict(
            tuple(Entry(e.key, substitute(e.value, owner, bound), e.where) for e in value.entries),
            value.where,
        )
    if isinstance(value, Made):
        return replace(
            value,
            args=tuple(substitute(a, owner, bound) for a in value.args),
            kwargs={k: substitute(v, owner, bound) for k, v in value.kwargs.items()},
        )
    return value


def substitute_bits(bits: Bits, owner: str, bound: dict[str, Value]) -> Bits:
    def how(slot: Slot) -> Bits:
        param = slot.param
        if param is None or param.owner != owner or param.name not in bound:
            return (slot,)
        given = bound[param.name]
        if isinstance(given, Thing) and given.facts.level == "unknown" and not given.param:
            return (replace(slot, param=None),)
        return as_bits(given, replace(slot, param=None, facts=replace(slot.facts, known=False)))

    return tight(change(bits, how))
