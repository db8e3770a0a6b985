"""Texts: f-strings, placeholders, and what is put together from them."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python import fields, sources
from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Bits, Lit, Slot, as_text, tight
from agentkv.lint.formats.python.facts import Facts, Where, fact
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.values import (
    Dict,
    Fn,
    Made,
    Many,
    Obj,
    Str,
    Thing,
    Value,
    as_bits,
    name_of,
    reads_of,
    with_facts,
)

_SCORE = re.compile(r"(?:^|[._])(?:scores?|similarity|relevance|distance)$", re.IGNORECASE)
_TEXTS = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)


class Strings(Base):
    """Makes bits of expressions."""

    def slot(self, node: ast.expr, where: Where | None, value: Value | None = None) -> Slot:
        """A slot for an expression that stands in a text."""
        value = self.value(node) if value is None else value
        name = name_of(node)
        if isinstance(value, Thing) and value.name and (not name or name == "text"):
            name = value.name
        expr = (
            self.module.text[where.start : where.end]
            if where and where.module == self.module.path
            else ""
        )
        facts = value.facts.reading(*reads_of(node))
        return Slot(expr or self.module.code(node), name, facts, where)

    def bits(self, node: ast.expr, value: Value | None = None, *, splice: bool = False) -> Bits:
        """The text of an expression, in its own place."""
        value = self.value(node) if value is None else value
        here = self.module.where(node)
        if isinstance(value, Str) and (
            splice or (isinstance(node, _TEXTS) and _made_here(value.bits, here))
        ):
            return value.bits
        return as_bits(value, self.slot(node, here, value))

    def _formatted(self, node: ast.JoinedStr) -> Str:
        out: list[Lit | Slot] = []
        for part in self.module.formatted(node):
            if isinstance(part, Lit):
                out.append(part)
                continue
            field, where = part
            value = self.value(field.value)
            if field.format_spec is not None:
                value = self._specified(value, field.format_spec)
            value = _scored(value, field.value)
            if isinstance(value, Obj) or (
                field.conversion == 114 and isinstance(value, Obj | Made)
            ):
                value = self.shown(value, field.value)
            if isinstance(value, Many):
                objects = [i.value for i in value.items if isinstance(i.value, Obj)]
                value = self.shown(objects[0], field.value) if objects else value
            slot = self.slot(field.value, where, value)
            if where is None:
                slot = replace(slot, expr=f"{{{ast.unparse(field.value)}}}")
            if field.format_spec is not None:
                slot = replace(slot, facts=slot.facts.reading(*reads_of(field.format_spec)))
            out += as_bits(value, slot)
        return Str(tight(out))

    def _specified(self, value: Value, spec: ast.expr) -> Value:
        text = as_text(self.value(spec))
        facts = sources.with_format(value.facts, text if text and "%" in text else None)
        if text and "n" in text[-1:]:
            facts = facts.plus("locale")
        return value if facts == value.facts else with_facts(value, facts)

    def shown(self, value: Value, node: ast.expr) -> Value:
        """An object in a text: its class may say what it looks like."""
        if isinstance(value, Obj):
            for name in ("__str__", "__repr__", "__format__"):
                method = self.attribute_of(value.owner, name)
                if isinstance(method, Fn):
                    return Thing(guess(name_of(node)), name_of(node))
            cls = self.program.cls(value.owner)
            if (
                cls is None
                or any(
                    b.rpartition(".")[2].partition("[")[0] not in ("object", "ABC", "Protocol")
                    for b in cls.bases
                )
                or any(
                    "dataclass" in ast.unparse(d) or "define" in ast.unparse(d)
                    for d in cls.node.decorator_list
                )
            ):
                return Thing(guess(name_of(node)), name_of(node))
            return Thing(
                fact("session", f"repr of {cls.node.name}, with its address", "object_repr"),
                name_of(node),
            )
        return value

    def concat(
        self, left: Value, right: Value, one: ast.expr, other: ast.expr, *, splice: bool = False
    ) -> Value:
        a = left.bits if splice and isinstance(left, Str) else self.bits(one, left)
        if left == NONE:
            a = ()
        b = self.bits(other, right)
        return Str(tight((*a, *b)))

    def percent(self, left: Str, right: Value, node: ast.BinOp) -> Str:
        named: dict[str, Value] = {}
        nodes: dict[str, ast.expr] = {}
        if isinstance(right, Dict):
            named = {e.key: e.value for e in right.entries if e.key}
        elif isinstance(right, Many) and right.kind == "tuple":
            named = {str(i): item.value for i, item in enumerate(right.items)}
            if isinstance(node.right, ast.Tuple):
                nodes = {str(i): e for i, e in enumerate(node.right.elts)}
        else:
            named, nodes = {"0": right}, {"0": node.right}
        return self.filled(left, "percent", named, nodes)

    def filled(
        self,
        text: Str,
        syntax: fields.Syntax,
        named: dict[str, Value],
        nodes: dict[str, ast.expr] | None = None,
        *,
        partial: bool = False,
    ) -> Str:
        """The text with its placeholders filled in."""
        nodes = nodes or {}
        if len(text.bits) == 1 and isinstance(text.bits[0], Slot) and not text.bits[0].expr:
            text = Str(text.bits[0].inner, text.use, text.name)  # a file's text
        found = fields.names(text.bits, syntax)
        if text.use is not None:
            text.use.formatted, text.use.syntax = True, syntax
            for key in found:
                if key.split(".")[0] in named:
                    text.use.bindings.setdefault(key, []).append(named[key.split(".")[0]])

        def resolve(name: str) -> Facts:
            root = name.split(".")[0]
            if name in named:
                return named[name].facts
            if root in named and named[root].facts.known:
                return named[root].facts
            return guess(name)

        out: list[Lit | Slot] = []
        for bit in fields.split(text.bits, syntax, resolve):
            if isinstance(bit, Lit) or bit.field is None or bit.inner or bit.field not in named:
                out.append(bit)
                continue
            value = named[bit.field]
            if bit.field in nodes:
                value = _scored(value, nodes[bit.field])
            if isinstance(value, Obj):
                shown = nodes.get(bit.field)
                value = self.shown(value, shown if shown is not None else ast.Name(bit.field))
            if bit.field.isdigit():
                node = nodes.get(bit.field)
                label = name_of(node) if node is not None else ""
                bit = replace(bit, name=label or getattr(value, "name", "") or bit.name)
            if syntax == "format" and ":" in bit.expr:
                pattern = bit.expr.partition(":")[2][:-1]
                facts = sources.with_format(value.facts, pattern if "%" in pattern else None)
                value = value if facts == value.facts else with_facts(value, facts)
            facts = value.facts
            if not facts.known and facts.level == "unknown":
                by_name = guess(bit.field)
                if by_name.level != "unknown":
                    value = with_facts(value, by_name) if isinstance(value, Thing) else value
            out += as_bits(value, replace(bit, field=None))
        return Str(tight(out), None, text.name)


def _scored(value: Value, node: ast.expr) -> Value:
    """A document's score that is written into a text."""
    if _SCORE.search(name_of(node)) and "context" in value.facts.traits:
        return with_facts(value, value.facts.plus("score_text"))
    return value


def _made_here(bits: Bits, here: Where) -> bool:
    """Whether an expression holds its text itself, rather than a name for it."""
    return any(
        b.where is not None
        and b.where.module == here.module
        and here.start <= b.where.start
        and b.where.end <= here.end
        for b in bits
    )
