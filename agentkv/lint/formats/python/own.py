"""Calls of the project's own functions and classes."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.bits import Slot, as_text, change, size
from agentkv.lint.formats.python.expressions import MIDDLE, Expressions
from agentkv.lint.formats.python.facts import UNKNOWN, Facts, Where, fact, join, rank
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.module import Function
from agentkv.lint.formats.python.program import Site
from agentkv.lint.formats.python.substitute import substitute
from agentkv.lint.formats.python.values import (
    Cls,
    Fn,
    Made,
    Many,
    Obj,
    Str,
    Thing,
    Value,
    name_of,
)
from agentkv.lint.template import Trait

CACHED = re.compile(
    r"(?:^|\.)(?:lru_cache|cache|cached_property|memoize|memoized|memoise|cached|cache_data|cache_resource|alru_cache|async_lru)\b"
)

_WRAPPED = re.compile(r"contextmanager|fixture|depends", re.IGNORECASE)
"""What is yielded once here is the value, and no element of many."""

_TIMED = re.compile(r"ttl|timed|expir", re.IGNORECASE)

_MADE_SO: frozenset[Trait] = frozenset(
    [
        "reencoded",
        "signed_url",
        "listing",
        "set_order",
        "completion_order",
        "tie_order",
        "score_order",
        "unsorted_json",
        "locale",
        "shuffled",
        "score_text",
    ]
)
"""How a value was made: that stays with it, whatever it is called with."""


class OwnCalls(Expressions):
    """Follows calls into the project."""

    def _own_call(
        self,
        function: Function,
        target: Fn,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        node: ast.Call,
    ) -> Value:
        """A function of the project; a method of `self` may be one of a subclass."""
        where = self.module.where(node)
        given = (*target.bound, *args)
        kwargs = {**dict(target.named), **kwargs}
        made = self.call_function(function, given, kwargs, where)
        match node.func:
            case ast.Attribute(value=ast.Name(id="self")) if function.cls is not None:
                for other in self.program.overrides(function):
                    more = self.call_function(other, given, kwargs, where)
                    if rank(more.facts.level) > rank(made.facts.level):
                        made = more
        return made

    def _instance(
        self, target: Cls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.Call
    ) -> Value:
        cls = self.program.cls(target.owner)
        if cls is None:
            return Thing()
        init = self._initialiser(target.owner)
        if init is not None:
            bound = bind(init, (Obj(target.owner), *args), kwargs)
            self._site(init.owner, bound, node)
        bases = {b.rpartition(".")[2] for b in cls.bases}
        if bases & {"BaseSettings", "Settings"}:
            return Obj(target.owner, fact("deploy", "settings"))
        if bases & {"BaseModel", "NamedTuple", "TypedDict"} or any(
            "dataclass" in ast.unparse(d) for d in cls.node.decorator_list
        ):
            return Made(
                target.owner,
                args,
                kwargs,
                self.module.where(node),
                level=join([v.facts for v in (*args, *kwargs.values())] or [UNKNOWN]),
            )
        return Obj(target.owner)

    def _initialiser(self, owner: str, depth: int = 0) -> Function | None:
        found = self.program.function(f"{owner}.__init__")
        if found is not None or depth > 4:
            return found
        cls, module = self.program.cls(owner), self.program.module_of(owner)
        if cls is None or module is None:
            return None
        for base in cls.bases:
            if base in module.classes:
                return self._initialiser(module.classes[base].owner, depth + 1)
        return None

    def _site(
        self, owner: str, bound: dict[str, Value], node: ast.AST, *, fan: bool = False
    ) -> None:
        sites = self.program.sites.setdefault(owner, [])
        if len(sites) < 200:
            where = (
                self.module.where(node)
                if isinstance(node, ast.expr)
                else Where(self.module.path, 0, 0)
            )
            sites.append(Site(self.owner, bound, where, bool(self.loops), fan=fan or self.fan > 0))

    def call_function(
        self, function: Function, args: tuple[Value, ...], kwargs: dict[str, Value], where: Where
    ) -> Value:
        bound = bind(function, args, kwargs)
        sites = self.program.sites.setdefault(function.owner, [])
        if len(sites) < 200:
            sites.append(Site(self.owner, bound, where, bool(self.loops), fan=self.fan > 0))
        frame = self.frame_of(function)
        if frame.done and frame.yields and not any(map(_WRAPPED.search, function.decorators)):
            return substitute(Many(tuple(frame.yields)), function.owner, bound)
        if not frame.done or not frame.returns:
            return Thing(_helper(function, bound), function.name)
        value = best_return([v for v, _ in frame.returns])
        names = {as_text(v) for v, _ in frame.returns}
        if len(names) > 1 and all(n is not None and len(n) < 80 for n in names):
            # One of several words: which one, the tests decide.
            tests = substitute(Thing(join(frame.returned_if)), function.owner, bound).facts
            if isinstance(value, Str) and rank(tests.level) > rank("unknown"):
                facts = tests.plus("conditional")
                value = Str((Slot("", function.name, facts, None, value.bits),))
        value = substitute(value, function.owner, bound)
        if isinstance(value, Str) and len(value.bits) == 1 and isinstance(value.bits[0], Slot):
            only = value.bits[0]
            if not only.inner:
                value = Thing(only.facts, only.name, only.param)
        cached = [d for d in function.decorators if CACHED.search(d) and not _TIMED.search(d)]
        if cached:
            return _memoised(value, function, bound)
        if isinstance(value, Thing):
            facts = value.facts
            if facts.known and rank(facts.level) > rank("unknown"):
                if function.owner.rpartition(":")[0] != self.module.path:
                    facts = facts.plus("via_helper")
                facts = facts.by(f"{function.name}()")
            elif facts.level == "unknown" and value.param is None:
                helper = _helper(function, bound)
                facts = replace(helper, traits=helper.traits | (facts.traits & _MADE_SO))
            if facts.made is None or facts.made.module != self.module.path:
                facts = replace(facts, made=None)
            return replace(value, facts=facts)
        return value

    def _pooled(self, node: ast.Call, callee: str, args: tuple[Value, ...]) -> None:
        if not args or not isinstance(args[0], Fn) or leaves_first(node):
            return
        function = self.program.function(args[0].owner)
        if function is None:
            return
        many = callee.endswith(("map", "imap", "imap_unordered", "map_async"))
        if not many and not (self.loops or self.fan or self._in_comprehension(node)):
            return
        values = [
            Thing(a.facts, name_of(n)) if many else a
            for a, n in zip(args[1:], node.args[1:], strict=False)
        ]
        self._site(function.owner, bind(function, (*args[0].bound, *values), {}), node, fan=True)
        self.frame_of(function)

    def _in_comprehension(self, node: ast.Call) -> bool:
        row = self.module.text[
            max(0, self.module.offsets.start(node) - 200) : self.module.offsets.end(node) + 200
        ]
        return " for " in row


def result_of(tail: str, facts: list[Facts], name: str) -> Facts:
    """Facts of the result of a function that nobody can see into."""
    named = guess(tail)
    worst = join(facts) if facts else UNKNOWN
    if rank(worst.level) > rank("unknown"):
        out = replace(worst, known=worst.known and worst.level == "call")
        if rank(named.level) > rank(worst.level):
            out = named
        return out
    if named.level != "unknown":
        return named
    return replace(UNKNOWN, why=f"{tail}()" if tail else "", traits=worst.traits - {"clock"})


def _helper(function: Function, bound: dict[str, Value]) -> Facts:
    return result_of(function.name, [v.facts for v in bound.values()], function.name)


def _memoised(value: Value, function: Function, bound: dict[str, Value]) -> Value:
    inputs = [v.facts for k, v in bound.items() if k not in ("self", "cls")]
    level = join(inputs).level if inputs else "deploy"
    if rank(level) < rank("deploy"):
        level = "deploy"

    def lift(facts: Facts) -> Facts:
        if rank(facts.level) <= rank("deploy"):
            return facts
        lower = level if rank(level) < rank(facts.level) else facts.level
        return replace(
            facts.plus("memoised").minus("reencoded", "signed_url"),
            level=lower,
            why=f"{function.name}(), cached: {facts.why}",
        )

    if isinstance(value, Thing):
        return replace(value, facts=lift(value.facts))
    if isinstance(value, Str):
        return Str(change(value.bits, lambda s: (replace(s, facts=lift(s.facts)),)))
    return value


def best_return(values: list[Value]) -> Value:
    """Of several results, the one that says most: the longest text, else facts of all."""
    texts = [v for v in values if isinstance(v, Str) and v.bits]
    if texts:
        return max(texts, key=lambda v: size(v.bits))
    rich = [v for v in values if not isinstance(v, Thing | Str)]
    if rich:
        return rich[0]
    things = [v for v in values if isinstance(v, Thing) and v != NONE]
    if not things:
        return values[0]
    if len(things) == 1:
        return things[0]
    ops = tuple(dict.fromkeys(op for t in things for op in t.ops))
    param = things[0].param if all(t.param == things[0].param for t in things) else None
    cut = next((t for t in things if t.facts.why == MIDDLE), None)
    if cut is not None:
        return Thing(join([cut.facts, *(t.facts for t in things)]), cut.name, None, ops)
    return Thing(join([t.facts for t in things]), things[0].name, param, ops)


def bind(function: Function, args: tuple[Value, ...], kwargs: dict[str, Value]) -> dict[str, Value]:
    """Values of the parameters that a call gives."""
    arguments = function.node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if (
        function.cls
        and names[:1] in (["self"], ["cls"])
        and not (args and isinstance(args[0], Obj | Cls))
    ):
        names = names[1:]
    bound = dict(zip(names, args, strict=False))
    known = {*names, *(a.arg for a in arguments.kwonlyargs)}
    bound |= {k: v for k, v in kwargs.items() if k in known}
    return bound


def leaves_first(node: ast.expr) -> bool:
    """Whether a fan-out leaves out the first element, which was sent ahead."""
    return any(
        isinstance(n, ast.Slice)
        and isinstance(n.lower, ast.Constant)
        and n.lower.value == 1
        and n.upper is None
        for n in ast.walk(node)
    )
