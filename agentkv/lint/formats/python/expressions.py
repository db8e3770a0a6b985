"""What an expression is worth."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import PurePath

from agentkv.lint.formats.python import fields, sources
from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Bits, Lit, Slot, as_text, tight
from agentkv.lint.formats.python.facts import FIXED, UNKNOWN, Facts, Where, fact, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.merge import NONE, either
from agentkv.lint.formats.python.shapes import strong_text
from agentkv.lint.formats.python.values import (
    Cls,
    Dict,
    Entry,
    Fn,
    Item,
    Lib,
    Made,
    Many,
    Obj,
    Str,
    Thing,
    Value,
    as_bits,
    name_of,
    ops_of,
    reads_of,
    with_facts,
)
from agentkv.lint.source import Slice
from agentkv.lint.template import HistoryOp, HistoryOpKind

_MOST_ELEMENTS = 400
ORDERS = ("set_order", "listing", "completion_order", "shuffled", "tie_order", "score_order")
"""Traits of a collection's order: an element alone does not have them."""
_CONFIG = frozenset({"settings", "config", "cfg", "conf", "configuration", "app_config", "options"})


class Expressions(Base):
    """Evaluates expressions by their kind."""

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.JoinedStr():
                return self._formatted(node)
            case ast.Name(id=name):
                return self.look(name)
            case ast.BinOp():
                return self._binary(node)
            case ast.Call():
                return self.call(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
                return self._display(node, elts)
            case ast.Dict():
                return self._dict(node)
            case ast.IfExp():
                test = self.test(node.test)
                return either(
                    self.value(node.body), self.value(node.orelse), test, self.module.where(node)
                )
            case ast.BoolOp(values=values):
                return self._either(node, values)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node)
            case ast.DictComp():
                inner = [self.iterated(self.value(g.iter), g.iter) for g in node.generators]
                return Thing(join(inner), name_of(node.generators[0].iter))
            case ast.Await(value=inner) | ast.Starred(value=inner) | ast.YieldFrom(value=inner):
                return self.value(inner)
            case ast.NamedExpr(target=target, value=inner):
                made = self.value(inner)
                self.env[target.id] = made
                return made
            case ast.Lambda():
                return self._lambda(node)
            case ast.UnaryOp(operand=inner):
                made = self.value(inner)
                number = made.number if isinstance(made, Thing) else None
                if isinstance(node.op, ast.USub) and number is not None:
                    return Thing(made.facts, number=-number)
                return Thing(made.facts, name_of(inner))
            case ast.Compare(left=left, comparators=others):
                return Thing(join([self.value(n).facts for n in (left, *others)]), name_of(left))
            case ast.FormattedValue(value=inner):
                return self.value(inner)
            case ast.Yield(value=inner) if inner is not None:
                return self.value(inner)
        return Thing()

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, str):
            return Str(self.module.constant(node))
        if node.value is None:
            return NONE
        number = node.value if isinstance(node.value, int | float) else None
        return Thing(FIXED, number=number)

    # -- strings ---------------------------------------------------------------------------------

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
        facts = value.facts
        if {"listing", "tools"} <= facts.traits:
            facts = facts.minus("listing")  # tools as text have rules of their own
        return Slot(expr or self.module.code(node), name, facts.reading(*reads_of(node)), where)

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
            if isinstance(value, Obj) or (
                field.conversion == 114 and isinstance(value, Obj | Made)
            ):
                value = self.shown(value, field.value)
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

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Mod) and isinstance(left, Str):
            return self.percent(left, right, node)
        if isinstance(node.op, ast.Add):
            if isinstance(left, Many) or isinstance(right, Many):
                return self._added(left, right, node)
            if isinstance(left, Str) or isinstance(right, Str):
                local = isinstance(node.left, ast.BinOp) or (
                    isinstance(node.left, ast.Name) and node.left.id in self.env and _grown(left)
                )
                return self.concat(left, right, node.left, node.right, splice=local)
            if isinstance(left, Thing) and isinstance(right, Thing):
                ops = self._cuts((*ops_of(left), *ops_of(right)), node)
                return Thing(join([left.facts, right.facts]), left.name or name_of(node), None, ops)
        if isinstance(node.op, ast.Mult) and isinstance(left, Str) and isinstance(right, Thing):
            text = as_text(left)
            if (
                text is not None
                and isinstance(right.number, int)
                and 0 <= right.number * len(text) < 10_000
            ):
                return Str((Lit(text * right.number),))
        if isinstance(node.op, ast.BitOr) and isinstance(left, Made):
            return left  # a chain: the prompt comes first
        if isinstance(node.op, ast.BitOr) and isinstance(right, Made) and "rompt" in right.kind:
            return right
        if isinstance(node.op, ast.Div) and isinstance(left, Made) and left.kind == "pathlib.Path":
            return self.joined(left, right)
        if isinstance(node.op, ast.Div) and isinstance(left, Thing | Made):
            return Thing(join([left.facts, right.facts]), name_of(node), fn=getattr(left, "fn", ""))
        return Thing(join([left.facts, right.facts]), name_of(node))

    def _added(self, left: Value, right: Value, node: ast.BinOp) -> Many:
        items: list[Item] = []
        for value, where in ((left, node.left), (right, node.right)):
            if isinstance(value, Many):
                items += value.items
            else:
                items.append(Item(value, self.module.where(where), spread=True))
        ops = self._cuts((*ops_of(left), *ops_of(right)), node)
        return Many(tuple(items), "list", tuple(dict.fromkeys(ops)))

    def _cuts(self, ops: tuple[HistoryOp, ...], node: ast.BinOp) -> tuple[HistoryOp, ...]:
        """`x[:k] + x[-n:]` is one cut, in the middle."""
        head, tail = _cut(node.left), _cut(node.right)
        if head is None or tail is None or head[0] != tail[0] or head[1] != "head":
            return ops
        kept = tuple(o for o in ops if o.kind != "front_truncation")
        return (*kept, self.operation("mid_trim", node, "the middle is cut out"))

    def operation(
        self, kind: HistoryOpKind, node: ast.expr | ast.stmt, detail: str = ""
    ) -> HistoryOp:
        where = self.module.where(node)
        return HistoryOp(
            kind=kind,
            slice=Slice(where.start, where.end),
            detail=detail,
            in_loop=bool(self.loops),
        )

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

    # -- containers ------------------------------------------------------------------------------

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
                facts = join([facts, cond]).plus("conditional")
            name = name_of(node.generators[0].iter)
            made_thing = Thing(facts, name, ops=ops_of(source))
            if kind == "set":
                return replace(made_thing, facts=facts.plus("set_order"))
            if isinstance(node.elt, ast.Name) and isinstance(source, Thing) and not cond:
                return replace(made_thing, param=source.param)
            return made_thing
        item = Item(element, self.module.where(node.elt), cond=cond, loop=over_facts)
        return Many((item,), kind, ops_of(source))

    def _mapped(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, source: Many
    ) -> Value | None:
        """A comprehension over a short literal list, element by element."""
        target = node.generators[0].target
        plain = all(not i.spread and not i.loop for i in source.items)
        if not plain or len(source.items) > 12 or not isinstance(target, ast.Name):
            return None
        items = []
        for item in source.items:
            self.env[target.id] = item.value
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
            named = guess(n.id)
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

    # -- access ----------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute) -> Value:
        match node.value:
            case ast.Name(id="self" | "cls"):
                key = f"self.{node.attr}"
                frame: Base | None = self
                while frame is not None:
                    if key in frame.env:
                        return frame.env[key]
                    frame = frame.outer
        base = self.value(node.value)
        if isinstance(base, Lib):
            return self.library(f"{base.dotted}.{node.attr}")
        if isinstance(base, Obj | Cls):
            found = self.attribute_of(base.owner, node.attr)
            if found is not None:
                return found
            return Thing(guess(node.attr), node.attr)
        if isinstance(base, Dict) and (value := base.get(node.attr)) is not None:
            return value
        if isinstance(base, Made):
            return self._made_attribute(base, node.attr)
        return self._part(base, node.attr, name_of(node))

    def joined(self, base: Made, more: Value) -> Made:
        """A path with another part; its text is kept as long as every part is known."""
        level = join([base.facts, more.facts])
        part = as_text(more)
        if isinstance(more, Thing) and more.name == "__file__":
            part = self.module.path
        elif isinstance(more, Made):
            part = as_text(more.kwargs.get("path"))
        before = as_text(base.kwargs.get("path")) if base.kwargs else ""
        if part is None or before is None:
            return replace(base, args=(), kwargs={"path": Thing()}, level=level)
        path = str(PurePath(before, part))
        return replace(base, args=(), kwargs={"path": Str((Lit(path),))}, level=level)

    def _made_attribute(self, base: Made, attr: str) -> Value:
        if attr in base.kwargs:
            return base.kwargs[attr]
        if base.kind == "pathlib.Path":
            return base.parent() if attr == "parent" else base
        known = base.facts.level
        if known != "unknown":
            return Thing(base.facts, attr)
        return Thing(guess(attr), attr)

    def _part(self, base: Value, attr: str, name: str) -> Value:
        """An attribute or an item of something that is not known further."""
        facts = base.facts
        root = name.split(".")[0].lower()
        if facts.traits & {"clock", "date"}:
            if attr in ("year", "month", "day", "weekday"):
                return Thing(facts.minus("clock").plus("date"), name)
            if attr == "hour":
                return Thing(facts.plus("hour"), name)
            return Thing(facts, name)
        if facts.known and facts.level != "unknown":
            return Thing(facts, name)
        named = guess(name)
        if named.level == "unknown":
            named = guess(attr)
        if named.level == "unknown" and (
            root in _CONFIG or ".config." in name or ".settings." in name
        ):
            return Thing(Facts("deploy", why=f"`{name}` of a configuration"), name)
        if named.level == "unknown" and facts.level != "unknown":
            return Thing(replace(facts, known=False), name)
        return Thing(replace(named, reads=facts.reads), name)

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            return self._sliced(base, node)
        key = self.value(node.slice)
        text = as_text(key)
        number = key.number if isinstance(key, Thing) else None
        if isinstance(base, Lib):
            if base.dotted.endswith("environ"):
                return Thing(fact("deploy", f"os.environ[{text!r}]"), text or "environ")
            return Thing(base.facts, name_of(node))
        if isinstance(base, Dict):
            if text is not None and (value := base.get(text)) is not None:
                return value
            return Thing(join([base.facts, key.facts]), name_of(node))
        if isinstance(base, Many):
            plain = [i for i in base.items if not i.spread and not i.loop and not i.cond]
            if (
                isinstance(number, int)
                and len(plain) == len(base.items)
                and -len(plain) <= number < len(plain)
            ):
                return plain[number].value
            if isinstance(number, int) and number == 0 and base.items and not base.items[0].spread:
                return base.items[0].value
            return Thing(join([base.facts, key.facts]), name_of(node))
        if text is not None:
            return self._part(base, text, name_of(node))
        facts = join([base.facts, key.facts]) if key.facts.known else base.facts
        return Thing(facts, name_of(node), ops=ops_of(base))

    def _sliced(self, base: Value, node: ast.Subscript) -> Value:
        assert isinstance(node.slice, ast.Slice)
        bounds = [self.value(b) for b in (node.slice.lower, node.slice.upper) if b is not None]
        name = name_of(node.value)
        if isinstance(base, Str):
            return (
                Thing(join([base.facts, *(b.facts for b in bounds)]), name)
                if base.facts != FIXED
                else base
            )
        facts = join([base.facts, *(b.facts for b in bounds if b.facts.known)])
        ops = ops_of(base)
        if self.conversation(node.value, base) and _recent(node.slice) and not self.batched(node):
            ops = (*ops, self.operation("front_truncation", node, self.module.code(node)))
        if isinstance(base, Many):
            if node.slice.lower is None and node.slice.upper is not None:
                top = self.value(node.slice.upper)
                if isinstance(top, Thing) and isinstance(top.number, int) and top.number >= 0:
                    head = base.items[: top.number]
                    if not any(i.spread or i.loop for i in head):
                        return Many(head, base.kind, ops)
            return replace(base, ops=ops)
        return Thing(facts, name, ops=ops)

    def conversation(self, node: ast.expr, value: Value) -> bool:
        """Whether something is a list of messages, by name or by what is in it."""
        facts = value.facts
        if "history" in facts.traits or "history" in guess(name_of(node)).traits:
            return True
        name = name_of(node).rpartition(".")[2].lower()
        if any(
            w in name
            for w in ("message", "history", "conversation", "msgs", "transcript", "turns", "dialog")
        ):
            return True
        if isinstance(value, Many):
            return any(isinstance(i.value, Dict) and i.value.get("role") for i in value.items)
        return False

    def batched(self, node: ast.Subscript) -> bool:
        """Whether a cut is made only once in a while: a test asks for clearly more than is kept."""
        assert isinstance(node.slice, ast.Slice)
        lower = node.slice.lower
        kept = self.value(lower.operand) if isinstance(lower, ast.UnaryOp) else None
        for test, _ in self.tests:
            for compare in ast.walk(test):
                if not isinstance(compare, ast.Compare) or len(compare.comparators) != 1:
                    continue
                code = ast.unparse(compare)
                if "token" in code.lower() or "ratio" in code.lower() or "budget" in code.lower():
                    return True
                if "len(" not in code and "count" not in code.lower():
                    continue
                limit = self.value(compare.comparators[0])
                a = limit.number if isinstance(limit, Thing) else None
                b = kept.number if isinstance(kept, Thing) else None
                if a is not None and b is not None:
                    return abs(a) - abs(b) >= 6
                if isinstance(lower, ast.UnaryOp) and ast.unparse(
                    compare.comparators[0]
                ) != ast.unparse(lower.operand):
                    return True
        return False

    def _either(self, node: ast.BoolOp, values: list[ast.expr]) -> Value:
        made = [self.value(v) for v in values]
        if isinstance(node.op, ast.And):
            return (
                either(made[-1], Str(()), self.test(values[0]), self.module.where(node))
                if isinstance(made[-1], Str)
                else Thing(join([m.facts for m in made]), name_of(node))
            )
        first = made[0]
        if isinstance(first, Thing):
            rest = join([m.facts for m in made[1:] if m != NONE])
            if isinstance(made[-1], Str) and first.param is None and first.facts.level == "unknown":
                return made[-1]
            facts = first.facts if not first.facts.known else join([first.facts, rest])
            return replace(first, facts=facts)
        return first

    def _lambda(self, node: ast.Lambda) -> Value:
        saved = dict(self.env)
        for arg in node.args.args:
            self.env[arg.arg] = Thing(guess(arg.arg).reading(arg.arg), arg.arg)
        made = self.value(node.body)
        self.env = saved
        return Made("lambda", (made,), {}, self.module.where(node), level=made.facts)

    def library(self, dotted: str) -> Value:
        """A dotted name: something of the project where it can be found, else a library's."""
        from agentkv.lint.formats.python.frame import exported

        found = self.program.lookup(dotted, self.module) if "." in dotted else None
        if found is not None:
            value = exported(self.program, found[0], found[1])
            if value is not None:
                return value
        facts = _library_facts(dotted)
        if facts.level == "build" and strong_text(dotted.rpartition(".")[2]):
            facts = facts.plus("fixed_text")
        return Lib(dotted, facts)


_TEXTS = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)


def _made_here(bits: Bits, here: Where) -> bool:
    """Whether an expression holds its text itself, rather than a name for it."""
    return any(
        b.where is not None
        and b.where.module == here.module
        and here.start <= b.where.start
        and b.where.end <= here.end
        for b in bits
    )


def _library_facts(dotted: str) -> Facts:
    facts = sources.of_call(dotted)
    if facts is not None and facts.level in ("build", "deploy"):
        return facts
    tail = dotted.rpartition(".")[2]
    parts = dotted.lower().split(".")
    if tail.isupper() or any(p in _CONFIG for p in parts):
        return Facts(
            "deploy" if any(p in _CONFIG for p in parts) else "build", why=f"`{tail}`, a constant"
        )
    return UNKNOWN


def _grown(value: Value) -> bool:
    """Whether a local text was put together here rather than named once."""
    return isinstance(value, Str) and (len(value.bits) != 1 or isinstance(value.bits[0], Slot))


def _recent(cut: ast.Slice) -> bool:
    """`[-n:]`: only the newest."""
    match cut:
        case ast.Slice(lower=ast.UnaryOp(op=ast.USub(), operand=inner), upper=None):
            return not (isinstance(inner, ast.Constant) and inner.value == 1)
    return False


def _cut(node: ast.expr) -> tuple[str, str] | None:
    """`x[:k]` (k > 1) is a head, `x[-n:]` a tail."""
    match node:
        case ast.Subscript(value=base, slice=ast.Slice(lower=None, upper=upper)) if (
            upper is not None
        ):
            if isinstance(upper, ast.Constant) and upper.value in (0, 1):
                return None
            return ast.unparse(base), "head"
        case ast.Subscript(value=base, slice=ast.Slice() as cut) if _recent(cut):
            return ast.unparse(base), "tail"
    return None
