"""Reading a body of statements in order: what each name holds, without running anything."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.binding import bind_parameters
from agentkv.lint.formats.python.calls import Calls
from agentkv.lint.formats.python.facts import FIXED, Facts, Where, fact, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.history import History
from agentkv.lint.formats.python.imports import imported
from agentkv.lint.formats.python.loops import Loops
from agentkv.lint.formats.python.merge import either
from agentkv.lint.formats.python.module import Function, Module
from agentkv.lint.formats.python.own import leaves_first
from agentkv.lint.formats.python.program import Program
from agentkv.lint.formats.python.prompts import Prompts
from agentkv.lint.formats.python.scopes import Scopes
from agentkv.lint.formats.python.values import (
    Cls,
    Fn,
    Item,
    Many,
    Str,
    Thing,
    Use,
    Value,
    name_of,
)

_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Frame(Prompts, History, Scopes, Loops, Calls):
    """One pass over a function's body, or over a module's own statements."""

    def __init__(
        self,
        program: Program,
        module: Module,
        owner: str,
        function: Function | None = None,
        outer: Frame | None = None,
    ) -> None:
        self.program = program
        self.module = module
        self.owner = owner
        self.function = function
        self.outer = outer
        self.env: dict[str, Value] = {}
        self.returns: list[tuple[Value, ast.AST]] = []
        self.yields: list[Item] = []
        self.returned_if: list[Facts] = []
        self.loops: list[ast.AST] = []
        self.tests: list[tuple[ast.expr, Facts]] = []
        self.within = owner.rpartition(":")[2]
        self.sent_lists = []
        self.fan = 0
        self.main_guard = False
        self.done = False
        self.pending: dict[str, list[ast.stmt]] = {}
        """Of a module: statements that were not read yet, by the names that they set."""
        self._ran: set[int] = set()

    def frame_of_module(self, module: Module) -> Frame:
        return module_frame(self.program, module)

    def frame_of(self, function: Function) -> Frame:
        return run_function(self.program, function)

    def exported(self, module: Module, name: str) -> Value | None:
        return exported(self.program, module, name)

    def demand(self, name: str) -> None:
        """Read the statements of a module that set a name."""
        for statement in self.pending.pop(name, ()):
            if id(statement) not in self._ran:
                self._ran.add(id(statement))
                self.run([statement])

    def run_rest(self) -> None:
        """Read every statement of a module that was not read yet."""
        if self.done:
            return
        self.done = True
        for statement in self.module.tree.body:
            if id(statement) not in self._ran:
                self._ran.add(id(statement))
                self.run([statement])
        self.pending = {}

    def run_body(self, function: Function) -> None:
        """The body of a function, or the expression of a lambda."""
        if isinstance(function.node, ast.Lambda):
            self.returns.append((self.value(function.node.body), function.node.body))
        else:
            self.run(function.node.body)

    def run(self, body: list[ast.stmt]) -> bool:
        """Whether the end of the body is reached."""
        for statement in body:
            try:
                if not self._statement(statement):
                    return False
            except RecursionError:
                continue
        return True

    def _statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign(targets=targets, value=value):
                together = self._sent_together(targets, value)
                self.fan += together
                made = self.value(value)
                self.fan -= together
                for target in targets:
                    self._assign(target, made, node)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, self.value(value), node)
            case ast.AugAssign():
                self._augment(node)
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=ast.Yield(value=value)) if value is not None:
                made = self.value(value)
                self.returns.append((made, node))
                self._yielded(made, value)
            case ast.Expr(value=ast.YieldFrom(value=value)):
                self._yielded(self.value(value), value, spread=True)
            case ast.Expr(value=value):
                self.value(value)
            case ast.Return(value=value):
                if value is not None:
                    made = self.value(value)
                    self.returns.append((made, value))
                    self.returned_if += [t for _, t in self.tests]
                    self.returned(made, value)
                return False
            case ast.If():
                return self._if(node)
            case ast.For() | ast.AsyncFor():
                self._for(node)
            case ast.While():
                self._while(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    made = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, made, node)
                return self.run(node.body)
            case ast.Try():
                return self._try(node)
            case ast.Match():
                return self._match(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._nested(node)
            case ast.ClassDef():
                self._class(node)
            case ast.Continue() | ast.Break():
                return False
            case ast.Raise():
                return False
            case ast.Delete():
                for target in node.targets:
                    self.deleted(target)
        return True

    def _yielded(self, made: Value, node: ast.expr, *, spread: bool = False) -> None:
        """One element of what a generator gives, or a run of them."""
        if spread and isinstance(made, Many):
            self.yields += made.items
            return
        test = join([t for _, t in self.tests]).plus("conditional") if self.tests else None
        loop = made.facts if self.loops else None
        self.yields.append(Item(made, self.module.where(node), spread, test, loop))

    def _sent_together(self, targets: list[ast.expr], value: ast.expr) -> bool:
        """Whether calls are made in a comprehension and awaited together later on."""
        if self.function is None or not isinstance(value, ast.ListComp | ast.GeneratorExp):
            return False
        names = [re.escape(t.id) for t in targets if isinstance(t, ast.Name)]
        if not names or leaves_first(value.generators[0].iter):
            return False
        awaited = rf"\b(?:gather\(\s*\*|as_completed\(|wait\()\s*(?:{'|'.join(names)})\b"
        return re.search(awaited, self.module.code(self.function.node)) is not None

    def _assign(self, target: ast.expr, made: Value, node: ast.stmt) -> None:
        match target:
            case ast.Name(id=name):
                self.env[name] = self._named(name, made, node)
                self.considered(name, self.env[name], getattr(node, "value", target))
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                known = (
                    made.items if isinstance(made, Many) and len(made.items) == len(elts) else None
                )
                for i, e in enumerate(elts):
                    part = known[i].value if known else Thing(self._unpacked(e, made), name_of(e))
                    self._assign(e, part, node)
            case ast.Starred(value=inner):
                self._assign(inner, Thing(made.facts, name_of(inner)), node)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr):
                self.env[f"self.{attr}"] = self._named(attr, made, node)
                self.considered(attr, made, getattr(node, "value", target))
                self.stored(target, made, node)
            case ast.Attribute() | ast.Subscript():
                self.stored(target, made, node)

    def _unpacked(self, target: ast.expr, made: Value) -> Facts:
        by_name = guess(name_of(target)).reading(name_of(target))
        if made.facts.level == "unknown" or not made.facts.known:
            return by_name if by_name.level != "unknown" else made.facts
        return made.facts

    def _named(self, name: str, made: Value, node: ast.stmt) -> Value:
        """A value that now has a name: remembered as where it was made, and usable by it."""
        if isinstance(made, Thing):
            facts = made.facts
            if facts.made is None and facts != FIXED:
                facts = replace(facts, made=self.module.where(node))
            if facts.level == "unknown" and not facts.known and not made.param:
                named = guess(name)
                if named.level != "unknown":
                    traits = named.traits | facts.traits
                    facts = replace(named, traits=traits, made=facts.made, reads=facts.reads)
            return replace(made, facts=_found_for(name, facts), name=made.name or name)
        if isinstance(made, Str) and made.use is None and self.function is None:
            return Str(made.bits, Use(), name)
        return made

    def _augment(self, node: ast.AugAssign) -> None:
        target, value = node.target, self.value(node.value)
        key = _key(target)
        if key is None:
            if isinstance(node.op, ast.Add):
                self.stored(target, value, node, added=True)
            return
        old = self.look(key) if not key.startswith("self.") else self._self(key)
        if isinstance(node.op, ast.Add):
            if isinstance(old, Many):
                self.env[key] = self.extended(old, value, node.value)
                return
            if isinstance(old, Str) or (isinstance(value, Str) and isinstance(old, Thing)):
                self.env[key] = self.concat(old, value, target, node.value, splice=True)
                return
        if isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.value, ast.Constant):
            if self.loops or key.startswith("self."):
                self.env[key] = Thing(
                    replace(
                        fact("call", f"`{key}` is counted", "counter"),
                        made=self.module.where(node),
                    ),
                    key.removeprefix("self."),
                )
            return
        if isinstance(old, Thing):
            self.env[key] = Thing(
                join([old.facts, value.facts]), old.name or key, old.param, old.ops
            )

    def _self(self, key: str) -> Value:
        if key in self.env:
            return self.env[key]
        if self.function is not None and self.function.cls:
            found = self.attribute_of(self.function.cls, key.removeprefix("self."))
            if found is not None:
                return found
        return Thing(guess(key.removeprefix("self.")), key.removeprefix("self."))

    def _if(self, node: ast.If) -> bool:
        if _main(node.test):
            self.main_guard = True
            return self.run(node.body)
        if _never(node.test):
            return self.run(node.orelse)
        test = self.test(node.test)
        self.tests.append((node.test, test))
        before = dict(self.env)
        reached = self.run(node.body)
        after_body, self.env = self.env, dict(before)
        reached_else = self.run(node.orelse)
        after_else = self.env
        self.tests.pop()
        if reached and reached_else:
            where = self.module.where(node)
            self.env = {
                k: self._joined(k, after_body, after_else, test, where)
                for k in {**after_else, **after_body}
            }
        else:
            self.env = after_body if reached else after_else
        return reached or reached_else

    def _joined(
        self, key: str, one: dict[str, Value], other: dict[str, Value], test: Facts, where: Where
    ) -> Value:
        if key not in one or key not in other:
            return one[key] if key in one else other[key]
        if one[key] is other[key]:
            return one[key]
        return either(one[key], other[key], test, where)

    def _try(self, node: ast.Try) -> bool:
        before = dict(self.env)
        reached = self.run(node.body) and self.run(node.orelse)
        main = self.env
        any_handler = False
        for handler in node.handlers:
            self.env = dict(before)
            if handler.name:
                self.env[handler.name] = Thing(
                    fact("turn", "text of an exception", "object_repr"), handler.name
                )
            if self.run(handler.body):
                any_handler = True
                main = {**self.env, **main} if reached else self.env
        self.env = main
        ended = self.run(node.finalbody)
        return (reached or any_handler) and ended

    def _match(self, node: ast.Match) -> bool:
        test = self.value(node.subject).facts
        before = dict(self.env)
        merged: dict[str, Value] | None = None
        for case in node.cases:
            self.env = dict(before)
            if self.run(case.body):
                if merged is None:
                    merged = self.env
                else:
                    where = self.module.where(node)
                    mine = self.env
                    merged = {
                        k: self._joined(k, merged, mine, test, where) for k in {**mine, **merged}
                    }
        self.env = merged if merged is not None else before
        return True

    def _nested(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        name = f"{self.owner.rpartition(':')[2]}.{node.name}".lstrip(".")
        found = self.module.functions.get(name)
        if found is None:
            return
        self.env[node.name] = Fn(found.owner)
        self.program.outers.setdefault(found.owner, self)
        self.decorated(found, node)

    def _class(self, node: ast.ClassDef) -> None:
        name = f"{self.owner.rpartition(':')[2]}.{node.name}".lstrip(".")
        found = self.module.classes.get(name)
        if found is None:
            return
        self.env[node.name] = Cls(found.owner)
        inner = Frame(self.program, self.module, found.owner, None, self)
        inner.within = node.name
        inner.run([s for s in node.body if not isinstance(s, ast.ClassDef)])
        self.class_made(found, node)


def _found_for(name: str, facts: Facts) -> Facts:
    """What a search found, called by what it is for: memories, examples."""
    if facts.known or "context" not in facts.traits:
        return facts
    named = guess(name).traits
    if "memory" in named:
        return facts.minus("context", "score_order").plus("memory")
    if "examples" in named:
        return facts.minus("context", "score_order").plus("examples", "selector")
    return facts


def _key(target: ast.expr) -> str | None:
    match target:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr):
            return f"self.{attr}"
    return None


def _main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id="__name__")):
            return True
    return False


def _never(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Constant(value=False):
            return True
    return False


def module_frame(program: Program, module: Module) -> Frame:
    """The frame of a module's own statements, which are read as their names are asked for."""
    key = f"{module.path}:"
    frame = program.frames.get(key)
    if frame is None:
        frame = Frame(program, module, key)
        program.frames[key] = frame
        for statement in module.tree.body:
            for name in _sets(statement):
                frame.pending.setdefault(name, []).append(statement)
    return frame


def _sets(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module sets (functions and classes are known without it)."""
    match statement:
        case (
            ast.FunctionDef()
            | ast.AsyncFunctionDef()
            | ast.ClassDef()
            | ast.Import()
            | ast.ImportFrom()
        ):
            return set()
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return {name}  # names.append(...)
    return {
        n.id
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def exported(program: Program, module: Module, name: str, depth: int = 0) -> Value | None:
    """What other modules get by importing `name`."""
    if name in module.functions:
        return Fn(module.functions[name].owner)
    if name in module.classes:
        return Cls(module.classes[name].owner)
    base = module_frame(program, module)
    head, _, rest = name.partition(".")
    if not rest:
        base.demand(head)
        if head in base.env:
            return imported(base.env[head])
    if head in module.imports and not rest and depth < 4:
        found = program.lookup(module.imports[head], module)
        if found is not None and found[0] is not module:
            return exported(program, found[0], found[1], depth + 1)
    if rest and head in module.classes:
        return base.attribute_of(module.classes[head].owner, rest)
    return None


def run_function(program: Program, function: Function) -> Frame:
    """The frame of a function's body, read once, with its parameters open."""
    frame = program.frames.get(function.owner)
    if frame is not None:
        return frame
    module = program.module_of(function.owner)
    assert module is not None
    outer = program.outers.get(function.owner)
    frame = Frame(program, module, function.owner, function, outer)
    program.frames[function.owner] = frame
    if not program.may_run():
        return frame
    bind_parameters(frame, function)
    frame.run_body(function)
    frame.later()
    frame.done = True
    return frame
