"""What a variable holds after branches and loops."""

from __future__ import annotations

from dataclasses import replace

from agentkv.lint.formats.python.bits import Bit, Bits, Lit, Slot, facts_of, size, slots
from agentkv.lint.formats.python.facts import FIXED, Facts, Where, join
from agentkv.lint.formats.python.values import Dict, Item, Many, Str, Thing, Value, ops_of

NONE = Thing(FIXED, "None")
LOOP = "loop counter"


def either(one: Value, other: Value, test: Facts, where: Where | None = None) -> Value:
    """The value after a conditional: `one` if it held, else `other`."""
    if one == other:
        return one
    if is_text(one) and is_text(other):
        return Str(_either_bits(_bits(one), _bits(other), test, where))
    if isinstance(one, Many) and isinstance(other, Many):
        return _either_items(one, other, test)
    if isinstance(one, Dict) and isinstance(other, Dict):
        return _either_dict(one, other, test)
    for a, b in ((one, other), (other, one)):
        if b == NONE and not isinstance(a, Thing):
            return a
        if isinstance(a, Str) and isinstance(b, Thing) and size(a.bits) >= 20:
            return Str(
                (
                    Slot(
                        "",
                        b.name,
                        join([test, b.facts, a.facts]).plus("conditional"),
                        where,
                        a.bits,
                    ),
                )
            )
        if isinstance(a, Many) and isinstance(b, Thing):
            return replace(a, ops=(*a.ops, *ops_of(b)))
    if isinstance(one, Thing) and isinstance(other, Thing):
        facts = join([one.facts, other.facts, _test(test)])
        ops = tuple(dict.fromkeys((*one.ops, *other.ops)))
        param = one.param if one.param == other.param or other.param is None else None
        name = one.name if one.name != "None" else other.name
        return Thing(facts, name, param or other.param, ops)
    if isinstance(one, Str | Many | Dict) or isinstance(other, Str | Many | Dict):
        return one if isinstance(one, Str | Many | Dict) else other
    return one if one != NONE else other


_SWITCHED = frozenset(
    ["response_format", "text_format", "tool_choice", "thinking", "reasoning", "reasoning_effort"]
)


def _either_dict(one: Dict, other: Dict, test: Facts) -> Dict:
    """The longer of two; a setting that only one has, and that is no value passed on, is one that
    is there or not."""
    longer, shorter = (one, other) if len(one.entries) >= len(other.entries) else (other, one)
    known = {e.key for e in shorter.entries}
    entries = []
    for e in longer.entries:
        new = e.key in _SWITCHED and e.key not in known
        if new and not isinstance(e.value, Thing) and e.key not in test.reads:
            facts = join([test, e.value.facts]).plus("conditional")
            e = replace(e, value=Thing(replace(facts, level=test.level, known=test.known)))
        entries.append(e)
    return Dict(tuple(entries), longer.where)


def _test(test: Facts) -> Facts:
    """A test makes a value vary only where it is known to."""
    return test if test.known else FIXED


def is_text(value: Value) -> bool:
    return isinstance(value, Str) or value == NONE


def _bits(value: Value) -> Bits:
    return value.bits if isinstance(value, Str) else ()


def _either_bits(one: Bits, other: Bits, test: Facts, where: Where | None) -> Bits:
    head = _common(one, other)
    a, b = one[head:], other[head:]
    tail = _common(a[::-1], b[::-1])
    end_a, end_b = len(a) - tail, len(b) - tail
    left, right = a[:end_a], b[:end_b]
    if not left and not right:
        return one
    inner = left if size(left) >= size(right) else right
    facts = join([test, facts_of(left), facts_of(right)]).plus("conditional")
    name = next((r for r in test.reads), "condition")
    made: Bit = Slot("", name, facts, where, inner)
    return (*one[:head], made, *a[end_a:])


def _common(one: Bits, other: Bits) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _either_items(one: Many, other: Many, test: Facts) -> Many:
    head = 0
    for a, b in zip(one.items, other.items, strict=False):
        if a != b:
            break
        head += 1
    rest = [
        i if i.cond else replace(i, cond=test) for i in (*one.items[head:], *other.items[head:])
    ]
    ops = tuple(dict.fromkeys((*one.ops, *other.ops)))
    return replace(one, items=(*one.items[:head], *rest), ops=ops)


def looped(before: Value | None, after: Value, each: Facts, where: Where | None) -> Value:
    """The value after a loop whose body turned `before` into `after` once."""
    if before is None or before == after:
        return after
    if isinstance(before, Str | Thing) and isinstance(after, Str) and is_text(before):
        old, new = _bits(before), after.bits
        head = _common(old, new)
        if head == len(old):
            return Str((*old, _loop(new[head:], each, where)))
        tail = _common(old[::-1], new[::-1])
        if tail == len(old):
            return Str((_loop(new[: len(new) - tail], each, where), *old))
        return after
    if isinstance(before, Many) and isinstance(after, Many):
        if after.items[: len(before.items)] == before.items:
            more = [
                replace(i, loop=i.loop or each, value=_settle(i.value, each))
                for i in after.items[len(before.items) :]
            ]
            return replace(after, items=(*before.items, *more))
        return after
    return after


def _loop(bits: Bits, each: Facts, where: Where | None) -> Slot:
    inner = settle(bits, each)
    facts = join([each, facts_of(inner)]).plus("loop")
    name = next(iter(each.reads), "") or next((s.name for s in slots(inner)), "loop")
    return Slot("", name, facts, where, inner)


def settle(bits: Bits, each: Facts) -> Bits:
    """Slots of a loop's counter, once the loop is over: they vary as what is iterated does."""
    out: list[Bit] = []
    for b in bits:
        if isinstance(b, Lit):
            out.append(b)
            continue
        facts = b.facts
        if facts.why.startswith(LOOP):
            facts = replace(each.minus("set_order"), reads=facts.reads)
        out.append(replace(b, facts=facts, inner=settle(b.inner, each)))
    return tuple(out)


def _settle(value: Value, each: Facts) -> Value:
    if isinstance(value, Str):
        return Str(settle(value.bits, each), value.use, value.name)
    return value


def item_bits(item: Item, value: Bits) -> Bits:
    """An element's text, as a section where it is conditional or repeated."""
    if item.cond is None and item.loop is None:
        return value
    facts = join([f for f in (item.cond, item.loop) if f] + [facts_of(value)])
    facts = facts.plus(*(["conditional"] if item.cond else []), *(["loop"] if item.loop else []))
    names = [s.name for s in slots(value) if s.name]
    reads = (*(item.loop.reads if item.loop else ()), *(item.cond.reads if item.cond else ()))
    name = (reads or names or ["section"])[0]
    return (Slot("", name, facts, item.where, value),)
