"""Loops: what their variables are, and what their bodies add."""

from __future__ import annotations

import ast
from dataclasses import replace

from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.containers import ORDERS
from agentkv.lint.formats.python.facts import Facts, fact, join
from agentkv.lint.formats.python.guess import guess_element
from agentkv.lint.formats.python.merge import LOOP, looped
from agentkv.lint.formats.python.values import (
    Many,
    Str,
    Thing,
    Value,
    name_of,
)


class Loops(Base):
    """Reads loops once, and tells what many rounds make of it."""

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        source = self.value(node.iter)
        each = self.iterated(source, node.iter)
        self._bind_loop(node.target, node.iter, source, each)
        self._loop(node, node.body, each)
        self.run(node.orelse)

    def _while(self, node: ast.While) -> None:
        test = self.test(node.test)
        each = replace(test, level="turn" if not test.known else test.level, why="a loop")
        self._loop(node, node.body, each)

    def _loop(self, node: ast.stmt, body: list[ast.stmt], each: Facts) -> None:
        before = dict(self.env)
        self.loops.append(node)
        self.counted(node)
        self.run(body)
        self.loops.pop()
        where = self.module.where(node)
        after = self.env
        self.env = {
            k: v if before.get(k) is v else looped(before.get(k), v, each, where)
            for k, v in after.items()
        }

    def counted(self, loop: ast.AST) -> None:
        """Names that the loop counts up are counters from its start."""
        for inner in ast.walk(loop):
            match inner:
                case ast.AugAssign(
                    target=ast.Name(id=name),
                    op=ast.Add() | ast.Sub(),
                    value=ast.Constant(value=int()),
                ):
                    self._counter(name, inner)
                case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub()):
                    before = self.env.get(name)
                    if isinstance(before, Thing) and before.number is not None:
                        self._counter(name, inner)  # a sum that began as a number

    def _counter(self, name: str, node: ast.stmt) -> None:
        where = self.module.where(node)
        counted = fact("call", f"`{name}` is counted", "counter")
        self.env[name] = Thing(replace(counted, made=where), name)

    def _bind_loop(self, target: ast.expr, over: ast.expr, source: Value, each: Facts) -> None:
        called = name_of(over.func) if isinstance(over, ast.Call) else ""
        counter = called in ("range", "count", "itertools.count")
        if called in ("enumerate",) and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            self._assign_loop(target.elts[0], each, counter=True)
            self._assign_loop(target.elts[1], each, counter=False)
            return
        if isinstance(target, ast.Tuple):
            for e in target.elts:
                self._assign_loop(e, each, counter=False)
            if isinstance(source, Thing) and source.fn == "os.walk":
                # Its elements are listings themselves.
                for n in (n.id for n in target.elts if isinstance(n, ast.Name)):
                    known = self.env[n]
                    self.env[n] = (
                        replace(known, facts=known.facts.plus("listing"))
                        if isinstance(known, Thing)
                        else known
                    )
            return
        self._assign_loop(target, each, counter=counter)
        if isinstance(source, Many) and isinstance(target, ast.Name) and not counter:
            kept = [i.value for i in source.items if not i.spread]
            if len(kept) == 1 and not isinstance(kept[0], Str):
                self.env[target.id] = kept[0]

    def _assign_loop(self, target: ast.expr, each: Facts, *, counter: bool) -> None:
        name = name_of(target)
        if isinstance(target, ast.Tuple):
            for e in target.elts:
                self._assign_loop(e, each, counter=counter)
            return
        if counter:
            facts = fact("call", f"{LOOP} `{name}`", "counter")
        else:
            named = guess_element(name)
            inside = each.minus("loop", *ORDERS)
            if each.known and each.level in ("build", "deploy"):
                facts = inside
            elif named.level != "unknown" and not each.known:
                facts = replace(named, traits=named.traits | inside.traits)
            else:
                facts = inside
        self.env[name] = Thing(facts.reading(name), name)

    def iterated(self, source: Value, node: ast.expr) -> Facts:
        """How often the elements of something change, and in what order they come."""
        facts = source.facts
        if isinstance(node, ast.Call) and name_of(node.func).rpartition(".")[2] in (
            "range",
            "count",
        ):
            inner = join([self.value(a).facts for a in node.args])
            return replace(inner, reads=())
        name = name_of(node)
        return facts.reading(*((name,) if isinstance(node, ast.Name) else ()))

    def test(self, node: ast.expr) -> Facts:
        """How often the outcome of a test changes."""
        facts = self.value(node).facts
        names = tuple(dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)))
        return replace(facts, traits=facts.traits - {"object_repr"}).reading(*names)
