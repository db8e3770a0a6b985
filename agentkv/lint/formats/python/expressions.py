"""What an expression is worth."""

from __future__ import annotations

import ast
from dataclasses import replace

from agentkv.lint.formats.python.access import Access, newest
from agentkv.lint.formats.python.bits import Lit, Slot, as_text
from agentkv.lint.formats.python.facts import FIXED, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.merge import NONE, either
from agentkv.lint.formats.python.values import (
    Item,
    Made,
    Many,
    Str,
    Thing,
    Value,
    name_of,
    ops_of,
)
from agentkv.lint.template import HistoryOp

MIDDLE = "the middle is cut out"
HUB = "a prompt hub, read"


class Expressions(Access):
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
                # Whether something is in a set does not depend on the set's order.
                facts = join([self.value(n).facts for n in (left, *others)])
                return Thing(facts.minus("set_order", "listing"), name_of(left))
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

    def _middle(self, node: ast.BinOp) -> Value | None:
        """`text[:k] + "..." + text[-n:]`."""
        inner = node.left
        if not isinstance(node.op, ast.Add) or not isinstance(inner, ast.BinOp):
            return None
        head, tail = _cut(inner.left), _cut(node.right)
        if (
            head is None
            or tail is None
            or head[0] != tail[0]
            or (head[1], tail[1]) != ("head", "tail")
        ):
            return None
        base = inner.left.value if isinstance(inner.left, ast.Subscript) else inner
        facts = self.value(base).facts
        return Thing(replace(facts, why=MIDDLE), name_of(base))

    def _binary(self, node: ast.BinOp) -> Value:
        middle = self._middle(node)
        if middle is not None:
            return middle
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
        if isinstance(node.op, ast.BitOr):
            self.chained(left, right)
        if isinstance(node.op, ast.BitOr) and isinstance(left, Made):
            if isinstance(right, Made) and "rompt" in right.kind and "Runnable" in left.kind:
                return right  # what fills the prompt, then the prompt
            return left  # a chain: the prompt comes first
        if isinstance(node.op, ast.BitOr) and isinstance(left, Thing) and hubbed(left):
            return left
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
        return (*kept, self.operation("mid_trim", node, MIDDLE))

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


def hubbed(value: Value) -> bool:
    """Whether a value is a prompt of a hub, or a chain that begins with one."""
    return isinstance(value, Thing) and value.facts.why.startswith(HUB)


def _grown(value: Value) -> bool:
    """Whether a local text was put together here rather than named once."""
    return isinstance(value, Str) and (len(value.bits) != 1 or isinstance(value.bits[0], Slot))


def _cut(node: ast.expr) -> tuple[str, str] | None:
    """`x[:k]` (k > 1) is a head, `x[-n:]` a tail."""
    match node:
        case ast.Subscript(value=base, slice=ast.Slice(lower=None, upper=upper)) if (
            upper is not None
        ):
            if isinstance(upper, ast.Constant) and upper.value in (0, 1):
                return None
            return ast.unparse(base), "head"
        case ast.Subscript(value=base, slice=ast.Slice() as cut) if newest(cut):
            return ast.unparse(base), "tail"
    return None
