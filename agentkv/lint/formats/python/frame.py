"""Reading a body of statements in order: what each name holds, without running anything."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace

from agentkv.lint.formats.python.bits import Bits, Param, Slot
from agentkv.lint.formats.python.calls import Calls
from agentkv.lint.formats.python.expressions import ORDERS
from agentkv.lint.formats.python.facts import FIXED, Facts, Where, fact, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.history import History
from agentkv.lint.formats.python.merge import LOOP, either, looped
from agentkv.lint.formats.python.module import Function, Module
from agentkv.lint.formats.python.program import Program
from agentkv.lint.formats.python.prompts import Prompts
from agentkv.lint.formats.python.shapes import strong_name
from agentkv.lint.formats.python.values import (
    Cls,
    Dict,
    Entry,
    Fn,
    Many,
    Obj,
    Str,
    Thing,
    Use,
    Value,
    name_of,
)

_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_DEPLOY_TYPES = ("Settings", "Config", "Configuration", "AppConfig", "Namespace")


class Frame(Prompts, History, Calls):
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
        self.loops: list[ast.AST] = []
        self.tests: list[tuple[ast.expr, Facts]] = []
        self.within = owner.rpartition(":")[2]
        self.sent_lists = []
        self.main_guard = False
        self.done = False
        self.pending: dict[str, list[ast.stmt]] = {}
        """Of a module: statements that were not read yet, by the names that they set."""
        self._ran: set[int] = set()

    # -- names -----------------------------------------------------------------------------------

    def look(self, name: str) -> Value:
        """What a name holds here."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.env:
                # A module's own value was made when it was imported.
                later = frame is not self and frame.owner.endswith(":") and not frame.main_guard
                return imported(frame.env[name]) if later else frame.env[name]
            frame = frame.outer
        if name in ("__file__", "__name__", "__doc__"):
            return Thing(fact("build", name), name)
        found = self._module_name(name)
        if found is not None:
            return found
        return Thing(guess(name).reading(name), name)

    def _module_name(self, name: str) -> Value | None:
        base = module_frame(self.program, self.module)
        if base is not self:
            base.demand(name)
            if name in base.env:
                return imported(base.env[name])
        if name in self.module.classes:
            return Cls(self.module.classes[name].owner)
        if name in self.module.functions:
            return Fn(self.module.functions[name].owner)
        if name in self.module.imports:
            return self.library(self.module.imports[name])
        for star in self.module.stars if len(self.module.stars) <= 4 else ():
            found = self.program.find(star, self.module)
            if found is not None:
                value = exported(self.program, found, name)
                if value is not None:
                    return value
        return None

    def attribute_of(
        self, cls_owner: str, name: str, seen: frozenset[str] = frozenset()
    ) -> Value | None:
        """`self.name` in a class: from its body, its `__init__`, its bases."""
        cls = self.program.cls(cls_owner)
        module = self.program.module_of(cls_owner)
        if cls is None or module is None or cls_owner in seen:
            return None
        qualified = f"{cls_owner.rpartition(':')[2]}.{name}"
        if qualified in module.functions:
            method = module.functions[qualified]
            if any(
                d.rpartition(".")[2] in ("property", "cached_property") for d in method.decorators
            ):
                return self.call_function(method, (), {}, Where(module.path, 0, 0))
            return Fn(method.owner, (Obj(cls_owner),))
        made = cls.attributes.get(name)
        if made:
            return self._attribute_value(module, made, name)
        for base in cls.bases:
            owner = self._class_owner(base, module)
            if owner:
                found = self.attribute_of(owner, name, seen | {cls_owner})
                if found is not None:
                    return found
        return None

    def _class_owner(self, base: str, module: Module) -> str | None:
        if base in module.classes:
            return module.classes[base].owner
        head, _, rest = base.partition(".")
        dotted = module.imports.get(head)
        if dotted is None:
            return None
        found = self.program.lookup(f"{dotted}.{rest}" if rest else dotted, module)
        if found and found[1] in found[0].classes:
            return found[0].classes[found[1]].owner
        return None

    def _attribute_value(
        self, module: Module, made: list[tuple[ast.expr, str | None]], name: str
    ) -> Value:
        values: list[Value] = []
        later = False
        for node, owner in made:
            if owner is None:
                base = module_frame(self.program, module)
                values.append(imported(base.value(node)))
                continue
            frame = self.program.frames.get(owner)
            key = f"self.{name}"
            if frame is None and len(self.program.frames) < 20_000:
                function = self.program.function(owner)
                if function is not None:
                    frame = run_function(self.program, function)
            if not owner.endswith((".__init__", ".__post_init__", ".setup", ".__new__")):
                later = True
            if frame is not None and key in frame.env:
                values.append(frame.env[key])
        if not values:
            return Thing(guess(name), name)
        best = values[0]
        for other in values[1:]:
            best = either(best, other, Facts("unknown", why="assigned in several places"))
        if later and isinstance(best, Thing) and best.facts.level in ("build", "deploy"):
            return Thing(guess(name), name)
        return best

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

    # -- statements ------------------------------------------------------------------------------

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
                made = self.value(value)
                for target in targets:
                    self._assign(target, made, node)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, self.value(value), node)
            case ast.AugAssign():
                self._augment(node)
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=ast.Yield(value=value)) if value is not None:
                self.returns.append((self.value(value), node))
            case ast.Expr(value=value):
                self.value(value)
            case ast.Return(value=value):
                if value is not None:
                    made = self.value(value)
                    self.returns.append((made, value))
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
            return replace(made, facts=facts, name=made.name or name)
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
                    where = self.module.where(inner)
                    self.env[name] = Thing(
                        replace(fact("call", f"`{name}` is counted", "counter"), made=where), name
                    )

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
            named = guess(name)
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


def imported(value: Value) -> Value:
    """A module's own value, as functions see it: computed once, when it was imported."""
    return _imported_value(value)


def _imported_value(value: Value) -> Value:
    if isinstance(value, Str):
        return Str(_imported_bits(value.bits), value.use, value.name)
    if isinstance(value, Thing) and value.facts.known and _varies(value.facts):
        return replace(value, facts=_at_import(value.facts))
    if isinstance(value, Many):
        items = tuple(replace(i, value=_imported_value(i.value)) for i in value.items)
        return replace(value, items=items)
    if isinstance(value, Dict):
        return Dict(
            tuple(Entry(e.key, _imported_value(e.value), e.where) for e in value.entries),
            value.where,
        )
    return value


def _imported_bits(bits: Bits) -> Bits:
    return tuple(
        replace(b, facts=_at_import(b.facts), inner=_imported_bits(b.inner))
        if isinstance(b, Slot) and b.facts.known and _varies(b.facts)
        else b
        for b in bits
    )


def _varies(facts: Facts) -> bool:
    return facts.level in ("turn", "call", "session") and "import_time" not in facts.traits


def _at_import(facts: Facts) -> Facts:
    return replace(
        facts.plus("import_time").minus("reencoded"),
        level="deploy",
        why=f"{facts.why}, when imported",
    )


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


def _service(frame: Frame, annotation: ast.expr | None) -> Obj | None:
    """An instance of a class of the project that does things (one that only holds data is not)."""
    match annotation:
        case ast.Constant(value=str(text)) if text.isidentifier():
            annotation = ast.Name(text, ast.Load())
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            annotation = left
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            annotation = inner
    if not isinstance(annotation, ast.Name | ast.Attribute):
        return None
    head = annotation.id if isinstance(annotation, ast.Name) else ""
    known = head in frame.module.classes or head in frame.module.imports
    if head and (not known or head in dir(builtins)):
        return None
    made = frame.value(annotation)
    if not isinstance(made, Cls):
        return None
    cls, module = frame.program.cls(made.owner), frame.program.module_of(made.owner)
    if cls is None or module is None or cls.node.decorator_list:
        return None
    name = made.owner.rpartition(":")[2]
    methods = [f for f in module.functions if f.startswith(f"{name}.") and "__" not in f]
    data = any(b.rpartition(".")[2] in ("BaseModel", "TypedDict", "NamedTuple") for b in cls.bases)
    return Obj(made.owner) if methods and not data else None


def bind_parameters(frame: Frame, function: Function) -> None:
    arguments = function.node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for i, arg in enumerate(every):
        if i == 0 and function.cls and arg.arg in ("self", "cls"):
            frame.env[arg.arg] = Obj(function.cls)
            continue
        service = _service(frame, arg.annotation)
        if service is not None:
            frame.env[arg.arg] = service
            continue
        facts = guess(arg.arg)
        kind = ast.unparse(arg.annotation) if arg.annotation is not None else ""
        if kind.rpartition(".")[2] in _DEPLOY_TYPES or kind.endswith(("Settings", "Config")):
            facts = Facts("deploy", why=f"a {kind}")
        facts = replace(facts, why=f"parameter `{arg.arg}`", reads=(arg.arg,))
        frame.env[arg.arg] = Thing(facts, arg.arg, Param(function.owner, arg.arg))
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            frame.env[extra.arg] = Thing(guess(extra.arg).reading(extra.arg), extra.arg)
    # A default that is a prompt is a prompt by its parameter's name.
    defaults = list(
        zip(arguments.args[-len(arguments.defaults) :], arguments.defaults, strict=False)
    )
    defaults = defaults if arguments.defaults else []
    pairs: list[tuple[ast.arg, ast.expr]] = list(defaults)
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d]
    for arg, default in pairs:
        if strong_name(arg.arg) or isinstance(default, ast.JoinedStr):
            base = module_frame(frame.program, frame.module)
            frame.considered(arg.arg, imported(base.value(default)), default)
