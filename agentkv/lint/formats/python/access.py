"""Attributes, items and slices."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import PurePath

from agentkv.lint.formats.python import sources
from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Lit, as_text
from agentkv.lint.formats.python.containers import Containers
from agentkv.lint.formats.python.facts import FIXED, UNKNOWN, Facts, fact, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.shapes import strong_text
from agentkv.lint.formats.python.values import (
    Cls,
    Dict,
    Lib,
    Made,
    Many,
    Obj,
    Str,
    Thing,
    Value,
    name_of,
    ops_of,
)
from agentkv.lint.source import Slice
from agentkv.lint.template import HistoryOp, HistoryOpKind

_CONFIG = frozenset({"settings", "config", "cfg", "conf", "configuration", "app_config", "options"})


READ_AGAIN = "read at each call"
"""How the reason of a value ends that is read from elsewhere whenever the prompt is made."""


class Access(Containers):
    """Evaluates access to a part of something."""

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
        given = self._field(base, attr)
        if given is not None:
            return given
        known = base.facts.level
        if known != "unknown":
            return Thing(base.facts, attr)
        return Thing(guess(attr), attr)

    def _field(self, base: Made, attr: str) -> Value | None:
        """A field of a dataclass of the project: what was given at its place, or its default."""
        cls, module = self.program.cls(base.kind), self.program.module_of(base.kind)
        if cls is None or module is None:
            return None
        fields = [
            s
            for s in cls.node.body
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        ]
        names = [s.target.id for s in fields if isinstance(s.target, ast.Name)]
        if attr not in names:
            return None
        at = names.index(attr)
        if at < len(base.args):
            return base.args[at]
        frame = self.frame_of_module(module)
        match fields[at].value:
            case ast.Call(func=func, keywords=keywords) if name_of(func) in ("field", "Field"):
                made = {k.arg: k.value for k in keywords}
                factory = made.get("default_factory")
                if isinstance(factory, ast.Lambda):
                    return frame.value(factory.body)
                if factory is not None:
                    call = ast.Call(func=factory, args=[], keywords=[])
                    return frame.value(ast.copy_location(call, factory))
            case ast.Constant() | ast.JoinedStr() | ast.Name() as default:
                return frame.value(default)
        return None

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
        if attr in ("__name__", "__qualname__", "__module__", "__doc__"):
            return Thing(replace(facts, level="unknown", why=f"`{name}`"), name)  # of the code
        named = guess(name)
        if named.level == "unknown" and attr != "name":  # a name of what, its owner says
            named = guess(attr)
        if named.level == "unknown" and (
            root in _CONFIG or ".config." in name or ".settings." in name
        ):
            return Thing(Facts("deploy", why=f"`{name}` of a configuration"), name)
        if named.level == "unknown" and facts.level != "unknown":
            return Thing(replace(facts, known=False), name)
        if facts.why.endswith(READ_AGAIN):
            named = replace(named, why=facts.why)
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
        if self.conversation(node.value, base) and newest(node.slice) and not self.batched(node):
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

    def library(self, dotted: str) -> Value:
        """A dotted name: something of the project where it can be found, else a library's."""
        found = self.program.lookup(dotted, self.module) if "." in dotted else None
        if found is not None:
            value = self.exported(found[0], found[1])
            if value is not None:
                return value
        facts = _library_facts(dotted)
        if facts.level == "build" and strong_text(dotted.rpartition(".")[2]):
            facts = facts.plus("fixed_text")
        return Lib(dotted, facts)


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


def newest(cut: ast.Slice) -> bool:
    """`[-n:]`: only the newest."""
    match cut:
        case ast.Slice(lower=ast.UnaryOp(op=ast.USub(), operand=inner), upper=None):
            return not (isinstance(inner, ast.Constant) and inner.value == 1)
    return False
