"""Lists, dicts and comprehensions."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.bits import as_text
from agentkv.lint.formats.python.copies import moving, rewritten
from agentkv.lint.formats.python.facts import FIXED, Facts, join
from agentkv.lint.formats.python.guess import guess_element
from agentkv.lint.formats.python.strings import Strings
from agentkv.lint.formats.python.values import (
    Dict,
    Entry,
    Item,
    Lib,
    Made,
    Many,
    Thing,
    Value,
    name_of,
    ops_of,
)
from agentkv.lint.source import Slice
from agentkv.lint.template import HistoryOp

_MOST_ELEMENTS = 400

ORDERS = ("set_order", "listing", "completion_order", "shuffled", "tie_order", "score_order")
"""Traits of a collection's order: an element alone does not have them."""


class Containers(Strings):
    """Evaluates displays of elements."""

    def _display(self, node: ast.expr, elts: list[ast.expr]) -> Value:
        kind = {ast.Tuple: "tuple", ast.Set: "set"}.get(type(node), "list")
        if len(elts) > _MOST_ELEMENTS:
            return Thing(FIXED)
        items: list[Item] = []
        ops: tuple[HistoryOp, ...] = ()
        for e in elts:
            value = self.value(e)
            spread = isinstance(e, ast.Starred)
            if spread and isinstance(value, Many):
                items += value.items
            else:
                items.append(Item(value, self.module.where(e), spread))
            ops += ops_of(value)
        return Many(tuple(items), kind, tuple(dict.fromkeys(ops)))

    def _dict(self, node: ast.Dict) -> Value:
        if len(node.keys) > _MOST_ELEMENTS:
            return Thing(FIXED)
        entries: list[Entry] = []
        for key, value in zip(node.keys, node.values, strict=True):
            made = self.value(value)
            if key is None:
                if isinstance(made, Dict):
                    entries += made.entries
                else:
                    entries.append(Entry(None, made, self.module.where(value)))
                continue
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                entries.append(Entry(key.value, made, self.module.where(value)))
                self.considered(key.value, made, value)
            else:
                text = as_text(self.value(key))
                entries.append(Entry(text, made, self.module.where(value)))
        return Dict(tuple(entries), self.module.where(node))

    def extended(self, old: Value, more: Value, node: ast.expr) -> Value:
        """A list after `+=` or `extend`."""
        assert isinstance(old, Many)
        if isinstance(more, Many):
            items = more.items
        else:
            items = (Item(more, self.module.where(node), spread=True),)
        ops = tuple(dict.fromkeys((*old.ops, *ops_of(more))))
        return replace(old, items=(*old.items, *items), ops=ops)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        saved = dict(self.env)
        each: list[Facts] = []
        cond: Facts | None = None
        source: Value = Thing()
        for i, gen in enumerate(node.generators):
            over = self.value(gen.iter)
            source = over if i == 0 else source
            facts = self.iterated(over, gen.iter)
            each.append(facts)
            self._bind_element(gen.target, gen.iter, over, facts)
            for test in gen.ifs:
                if self._once() or _of_itself(test, gen.target):
                    # Which elements are kept is a matter of the code, not of the call.
                    cond = join([*([cond] if cond else []), FIXED])
                else:
                    cond = join([*([cond] if cond else []), self.test(test)]).plus("conditional")
        if (
            isinstance(source, Many)
            and source.kind != "set"
            and not cond
            and len(node.generators) == 1
        ):
            made = self._mapped(node, source)
            if made is not None:
                self.env = saved
                return made
        element = self.value(node.elt)
        self.env = saved
        kind = "set" if isinstance(node, ast.SetComp) else "list"
        over_facts = join(each)
        if isinstance(element, Thing | Lib) and not ops_of(element):
            facts = join([over_facts, element.facts])
            if cond:
                facts = join([facts, cond])
            name = name_of(node.generators[0].iter)
            made_thing = Thing(facts, name, ops=ops_of(source))
            if kind == "set":
                return replace(made_thing, facts=facts.plus("set_order"))
            if isinstance(node.elt, ast.Name) and isinstance(source, Thing) and not cond:
                return replace(made_thing, param=source.param)
            return made_thing
        item = Item(element, self.module.where(node.elt), cond=cond, loop=over_facts)
        return Many((item,), kind, (*ops_of(source), *self._copies(node)))

    def _once(self) -> bool:
        """Whether this is a statement of a module that is read once, at import."""
        return self.function is None and not self.loops and not self.main_guard

    def _copies(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> tuple[HistoryOp, ...]:
        """Earlier messages, copied with another content."""
        gen = node.generators[0]
        if not re.search(r"message|history|conversation|msgs|turns", ast.unparse(gen.iter), re.I):
            return ()
        turns = {n.id for n in ast.walk(gen.target) if isinstance(n, ast.Name)}
        if not rewritten(node.elt, turns) or not moving(node):
            return ()
        where = self.module.where(node)
        return (
            HistoryOp(
                kind="edited_in_place",
                slice=Slice(where.start, where.end),
                detail=self.module.code(node).split("\n")[0][:80],
                in_loop=bool(self.loops),
            ),
        )

    def _mapped(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, source: Many
    ) -> Value | None:
        """A comprehension over a short literal list, element by element."""
        target = node.generators[0].target
        plain = all(not i.spread and not i.loop for i in source.items)
        names = [n.id for n in getattr(target, "elts", [target]) if isinstance(n, ast.Name)]
        pair = isinstance(target, ast.Tuple) and all(
            isinstance(i.value, Many) and len(i.value.items) == len(names) == len(target.elts)
            for i in source.items
        )
        if not plain or len(source.items) > 12 or not (pair or isinstance(target, ast.Name)):
            return None
        items = []
        for item in source.items:
            if pair and isinstance(item.value, Many):
                self.env |= {n: i.value for n, i in zip(names, item.value.items, strict=True)}
            else:
                self.env[names[0]] = item.value
            items.append(
                replace(item, value=self.value(node.elt), where=self.module.where(node.elt))
            )
        return Many(tuple(items), "list", source.ops)

    def _bind_element(self, target: ast.expr, over: ast.expr, source: Value, each: Facts) -> None:
        names = [n for n in ast.walk(target) if isinstance(n, ast.Name)]
        enumerated = isinstance(over, ast.Call) and name_of(over.func) in (
            "enumerate",
            "range",
            "zip",
        )
        each = each.minus(*ORDERS)
        for n in names:
            named = guess_element(n.id)
            facts = each
            if not each.known and each.level == "unknown" and not enumerated:
                facts = (
                    replace(named, traits=named.traits | each.traits)
                    if named.level != "unknown"
                    else each
                )
            self.env[n.id] = Thing(facts.reading(n.id), n.id)
        if isinstance(source, Many) and isinstance(target, ast.Name):
            kept = [i.value for i in source.items if not i.spread]
            if len(kept) == 1 and isinstance(kept[0], Dict | Made):
                self.env[target.id] = kept[0]


_PLAIN = frozenset(["len", "str", "int", "bool", "isinstance", "hasattr", "getattr", "any", "all"])


def _of_itself(test: ast.expr, target: ast.expr) -> bool:
    """Whether a test asks an element about nothing but itself: `not t["name"].startswith("_")`."""
    own = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    asked = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    return bool(asked & own) and asked <= own | _PLAIN
