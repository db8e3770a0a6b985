"""Abstract values: what the reader knows of an expression without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from agentkv.lint.formats.python.bits import Bit, Bits, Lit, Param, Slot, as_text, facts_of, fill
from agentkv.lint.formats.python.facts import FIXED, UNKNOWN, Facts, Where, join
from agentkv.lint.template import HistoryOp


@dataclass(slots=True)
class Use:
    """How a string constant or a framework template is used, over the whole project."""

    bindings: dict[str, list[Value]] = field(default_factory=dict)
    syntax: str | None = None
    formatted: bool = False
    plain: bool = False
    """It went into a prompt as it stands, so its braces are text."""


@dataclass(frozen=True, slots=True)
class Str:
    """A string. `use` is set for a constant that has a name."""

    bits: Bits
    use: Use | None = field(default=None, compare=False)
    name: str = ""

    @property
    def facts(self) -> Facts:
        return facts_of(self.bits)


@dataclass(frozen=True, slots=True)
class Item:
    """An element of a list. `spread`: the value is a run of elements. `cond`/`loop`: it is there
    under a condition, or many times; the facts are those of the test or of what is iterated."""

    value: Value
    where: Where | None = None
    spread: bool = False
    cond: Facts | None = None
    loop: Facts | None = None


@dataclass(frozen=True, slots=True)
class Many:
    """A list, tuple or set whose elements are known (at least partly)."""

    items: tuple[Item, ...]
    kind: str = "list"
    ops: tuple[HistoryOp, ...] = ()
    extra: Facts | None = None

    @property
    def facts(self) -> Facts:
        parts = [i.value.facts for i in self.items]
        parts += [f for i in self.items for f in (i.cond, i.loop) if f]
        base = join(parts)
        if self.extra:
            base = join([base, self.extra])
        if self.kind == "set" and len(self.items) != 1:
            base = base.plus("set_order")
        return base


@dataclass(frozen=True, slots=True)
class Entry:
    key: str | None
    value: Value
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class Dict:
    """A mapping with literal keys; a None key is `**other`."""

    entries: tuple[Entry, ...]
    where: Where | None = None

    @property
    def facts(self) -> Facts:
        return join(e.value.facts for e in self.entries)

    def get(self, *keys: str) -> Value | None:
        entry = self.entry(*keys)
        return entry.value if entry else None

    def entry(self, *keys: str) -> Entry | None:
        for e in reversed(self.entries):
            if e.key in keys:
                return e
            if e.key is None and isinstance(e.value, Dict) and (found := e.value.entry(*keys)):
                return found
        return None

    def with_entry(self, key: str, value: Value, where: Where | None) -> Dict:
        kept = tuple(e for e in self.entries if e.key != key)
        return Dict((*kept, Entry(key, value, where)), self.where)


@dataclass(frozen=True, slots=True)
class Made:
    """An object made by a call of `kind` (a dotted library name, or a class of the project)."""

    kind: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    where: Where | None = None
    use: Use = field(default_factory=Use, compare=False)
    level: Facts = UNKNOWN

    @property
    def facts(self) -> Facts:
        return self.level

    @property
    def tail(self) -> str:
        return self.kind.rpartition(".")[2]

    def parent(self) -> Made:
        """Of a path: the folder above."""
        path = as_text(self.kwargs.get("path"))
        if path is None:
            return self
        return replace(self, kwargs={"path": Str((Lit(str(PurePath(path).parent)),))})


@dataclass(frozen=True, slots=True)
class Fn:
    """A function of the project: its key, and values bound to its first parameters and by name."""

    owner: str
    bound: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    facts: Facts = FIXED


@dataclass(frozen=True, slots=True)
class Cls:
    """A class of the project."""

    owner: str
    facts: Facts = FIXED


@dataclass(frozen=True, slots=True)
class Obj:
    """An instance of a class of the project."""

    owner: str
    facts: Facts = UNKNOWN


@dataclass(frozen=True, slots=True)
class Lib:
    """A name of a library, `datetime.datetime`."""

    dotted: str
    facts: Facts = FIXED


@dataclass(frozen=True, slots=True)
class Thing:
    """Anything else: only its facts are known."""

    facts: Facts = UNKNOWN
    name: str = ""
    param: Param | None = None
    ops: tuple[HistoryOp, ...] = ()
    number: int | float | None = None
    fn: str = ""
    """Dotted name of the library function that made it."""


Value = Str | Many | Dict | Made | Fn | Cls | Obj | Lib | Thing


def with_facts(value: Value, facts: Facts) -> Value:
    """The value, seen with other facts (text keeps its text)."""
    if isinstance(value, Str):
        return Str(tuple(_lift(b, facts) for b in value.bits), None, value.name)
    if isinstance(value, Many):
        return replace(value, extra=facts)
    if isinstance(value, Thing):
        return replace(value, facts=facts)
    return value


def _lift(bit: Bit, facts: Facts) -> Bit:
    return replace(bit, facts=facts) if isinstance(bit, Slot) else bit


def as_bits(value: Value, slot: Slot) -> Bits:
    """What `value` looks like where `slot` stands."""
    if isinstance(value, Str):
        return fill(slot, value.bits, value.facts)
    param = value.param if isinstance(value, Thing) else None
    facts = value.facts.reading(*slot.facts.reads)
    if {"listing", "tools"} <= facts.traits:
        facts = facts.minus("listing")  # tools as text have rules of their own
    return (replace(slot, facts=facts, param=param),)


def ops_of(value: Value) -> tuple[HistoryOp, ...]:
    if isinstance(value, Many):
        inner = [op for i in value.items for op in ops_of(i.value)]
        return tuple(dict.fromkeys((*value.ops, *inner)))
    return value.ops if isinstance(value, Thing) else ()


def add_op(value: Value, op: HistoryOp) -> Value:
    if isinstance(value, Many | Thing):
        return replace(value, ops=(*value.ops, op))
    return value


def walk(value: Value, depth: int = 6) -> Iterator[Value]:
    """The value and what is in it."""
    yield value
    if depth == 0:
        return
    if isinstance(value, Many):
        for item in value.items:
            yield from walk(item.value, depth - 1)
    elif isinstance(value, Dict):
        for e in value.entries:
            yield from walk(e.value, depth - 1)
    elif isinstance(value, Made):
        for one in (*value.args, *value.kwargs.values()):
            yield from walk(one, depth - 1)


def name_of(node: ast.expr) -> str:
    """The variable that an expression is about, for the dictionary of names."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=attr):
            head = name_of(inner) if isinstance(inner, ast.Name | ast.Attribute) else ""
            return f"{head}.{attr}" if head and head not in ("self", "cls") else attr
        case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
            return key
        case ast.Subscript(value=inner):
            return name_of(inner)
        case ast.Call(
            func=ast.Attribute(value=inner, attr="get"), args=[ast.Constant(value=str(k)), *_]
        ):
            return k
        case ast.Call(func=ast.Attribute(attr="join"), args=[arg]):
            return name_of(arg)
        case ast.Call(
            func=ast.Name(id="str" | "repr" | "len" | "sorted" | "list" | "tuple"), args=[arg, *_]
        ):
            return name_of(arg)
        case ast.Call(func=ast.Attribute(attr="dumps"), args=[arg, *_]):
            return name_of(arg)
        case ast.Call(
            func=ast.Attribute(
                value=inner,
                attr="strip"
                | "upper"
                | "lower"
                | "title"
                | "strftime"
                | "isoformat"
                | "format"
                | "model_dump_json"
                | "rstrip"
                | "lstrip"
                | "capitalize",
            )
        ):
            return name_of(inner) or "text"
        case ast.Call(func=func):
            return name_of(func).rpartition(".")[2]
        case ast.BoolOp(values=[first, *_]):
            return name_of(first)
        case ast.IfExp(body=body, orelse=other):
            return name_of(body) or name_of(other)
        case ast.Await(value=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
            return name_of(inner)
        case ast.BinOp(left=left, right=right):
            return name_of(left) or name_of(right)
        case ast.ListComp(generators=[gen, *_]) | ast.GeneratorExp(generators=[gen, *_]):
            return name_of(gen.iter)
        case ast.FormattedValue(value=inner):
            return name_of(inner)
    return ""


def reads_of(node: ast.AST) -> tuple[str, ...]:
    """Local names that an expression needs."""
    bound = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return tuple(
        dict.fromkeys(
            n.id
            for n in ast.walk(node)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id not in bound
        )
    )
