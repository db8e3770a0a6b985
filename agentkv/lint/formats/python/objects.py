"""Methods of libraries' objects: templates, paths, times."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

from agentkv.lint.formats.python import sources
from agentkv.lint.formats.python.bits import Lit, Slot, as_text
from agentkv.lint.formats.python.facts import Facts, fact, join, rank
from agentkv.lint.formats.python.fields import Syntax
from agentkv.lint.formats.python.lists import ListCalls
from agentkv.lint.formats.python.own import CACHED
from agentkv.lint.formats.python.texts import KEEP_TEXT
from agentkv.lint.formats.python.values import (
    Dict,
    Made,
    Str,
    Thing,
    Value,
    name_of,
)
from agentkv.lint.template import Level

_ENCODED = frozenset({"getvalue", "tobytes", "getbuffer", "resize", "thumbnail", "imencode"})

_TIMES = frozenset(
    {
        "strftime",
        "format",
        "isoformat",
        "date",
        "time",
        "timestamp",
        "ctime",
        "astimezone",
        "replace",
        "floor",
        "normalize",
        "to_iso8601_string",
        "humanize",
        "to_date_string",
        "format_datetime",
    }
)
_ENVIRONMENT = re.compile(
    r"(?:^|\.)(?:Environment|SandboxedEnvironment|NativeEnvironment|ImmutableSandboxedEnvironment)$"
)


class ObjectCalls(ListCalls):
    """Evaluates methods of objects that are known by how they were made."""

    def _made_method(
        self,
        node: ast.Call,
        name: str,
        base: Made,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        nodes: dict[str, ast.expr],
    ) -> Value | None:
        text = base.args[0] if base.args else base.kwargs.get("template", base.kwargs.get("source"))
        syntax = template_syntax(base)
        filling = name in ("substitute", "safe_substitute", "render", "render_async")
        if syntax is not None and isinstance(text, Str) and filling:
            named = dict(kwargs)
            for arg in args:
                if isinstance(arg, Dict):
                    named |= {e.key: e.value for e in arg.entries if e.key}
            return self.filled(text, syntax, named, nodes)
        if name == "from_string" and _ENVIRONMENT.search(base.kind) and args:
            if isinstance(args[0], Str) and args[0].use is not None:
                args[0].use.syntax, args[0].use.formatted = "jinja", True
            return Made("jinja2.Template", args, kwargs, self.module.where(node))
        if base.kind.startswith("random.Random") or base.kind.endswith("default_rng"):
            if base.args or base.kwargs:
                return Thing(fact("build", "seeded"), name_of(node))
            facts = sources.of_call(f"random.{name}")
            return Thing(facts, name_of(node)) if facts else None
        if base.kind.startswith("pathlib.Path") or base.kind == "open":
            return self._path_method(node, name, base, args)
        if base.kind == "io.BytesIO" and name in _ENCODED:
            facts = base.facts if base.facts.level != "unknown" else Facts(why="an image")
            return Thing(facts.plus("reencoded"), name_of(node.func))
        if base.kind == "faker.Faker":
            return Thing(fact("call", "faker", "random_content"), name_of(node))
        return self.framework_method(node, name, base, args, kwargs)

    def framework_method(
        self,
        node: ast.Call,
        name: str,
        base: Made,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> Value | None:
        """A method of a library's object."""
        return None

    def _path_method(
        self, node: ast.Call, name: str, base: Made, args: tuple[Value, ...]
    ) -> Value | None:
        facts = base.facts
        if name in ("read_text", "read_bytes", "read", "readlines"):
            return self._file(facts, node, base)
        if name in ("joinpath", "with_name", "resolve", "absolute", "expanduser", "open"):
            made = replace(base, args=())
            for arg in args if name in ("joinpath", "with_name") else ():
                made = self.joined(made.parent() if name == "with_name" else made, arg)
            return made
        if name in ("glob", "rglob", "iterdir"):
            level = "session" if rank(facts.level) <= rank("session") else facts.level
            return Thing(
                Facts(level, frozenset({"listing"}), f"Path.{name}()", True), name_of(node)
            )
        if name in ("exists", "is_file", "is_dir"):
            return Thing(facts, name_of(node))
        return Made(base.kind, base.args, base.kwargs, base.where, level=facts)

    def _file(self, facts: Facts, node: ast.Call, base: Made) -> Value:
        """The content of a file: its text, where that can be read."""
        name = name_of(node)
        often = self.function is not None and not any(
            CACHED.search(d) for d in self.function.decorators
        )
        path = as_text(base.kwargs.get("path"))
        if path is not None and facts.level in ("build", "deploy"):
            text = self.program.text_of(path, self.module)
            if text is not None:
                known = fact("build", "a file, read at each call" if often else "a file")
                return Str((Slot("", Path(path).stem, known, None, (Lit(text),)),))

        if facts.level in ("build", "deploy"):
            why = "a file, read at each call" if often else "a file"
            level: Level = "build" if facts.level == "build" else "deploy"
            return Thing(Facts(level, frozenset({"fixed_text"}), why, True), name)
        return Thing(replace(facts, why=f"a file ({facts.why})"), name)

    def _thing_method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        base: Thing,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> Value | None:
        name = func.attr
        if name == "strftime" and "setlocale(" in self.module.text and args:
            base = replace(base, facts=sources.with_locale(base.facts, as_text(args[0])))
            if not base.facts.traits & {"clock", "date"}:
                return base
        if name in _TIMES and base.facts.traits & {"clock", "date"}:
            return self._time_method(name, base, args, kwargs)
        globbed = name == "glob" and "*" in ((as_text(args[0]) if args else None) or "")
        if base.fn.startswith("pathlib.Path") or name in ("iterdir", "rglob") or globbed:
            made = self._path_method(
                node, name, Made("pathlib.Path", (base,), {}, level=base.facts), args
            )
            if made is not None and not isinstance(made, Made):
                return made
        if name in ("append", "extend", "insert", "pop", "popleft") and self.key_of(func.value):
            return self.grow_unknown(node, func, base, args)
        if name in ("items", "values", "keys", "copy"):
            return Thing(base.facts, base.name or name_of(func.value), ops=base.ops)
        if name == "get" and args:
            text = as_text(args[0])
            if text is not None:
                return self._part(base, text, text)
        if name == "most_common":
            return Thing(base.facts.plus("tie_order"), base.name)
        if name == "join" and len(args) == 1:
            return Thing(join([base.facts, args[0].facts]), name_of(node))
        if base.facts.known and rank(base.facts.level) > rank("unknown") and not args:
            return Thing(base.facts, name_of(node) or base.name, fn=base.fn)
        if name in ("split", "partition", "rpartition", "rsplit") and args:
            mark = as_text(args[0]) or ""
            if re.search(r"think|reasoning", mark):
                op = self.operation("reasoning_stripped", node, mark)
                return Thing(base.facts, base.name, ops=(*base.ops, op))
        if name in KEEP_TEXT or name in ("hex", "splitlines", "split", "isoformat", "strip"):
            strips = name.endswith("strip") and not args
            return Thing(base.facts, base.name, base.param, base.ops, fn="strip" if strips else "")
        return None

    def _time_method(
        self, name: str, base: Thing, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Thing:
        facts = base.facts
        if name == "date" or name == "to_date_string":
            facts = facts.minus("clock").plus("date")
        elif name in ("strftime", "format") and args:
            facts = sources.with_format(facts, as_text(args[0]))
        elif name in ("replace", "floor", "isoformat", "normalize"):
            facts = _coarser(name, facts, args, kwargs)
        return Thing(facts, base.name, fn=base.fn)


def _coarser(name: str, facts: Facts, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Facts:
    """A time of which only the hour or the day is left: `replace(minute=0, second=0,
    microsecond=0)`, `isoformat(timespec="hours")`, `floor("h")`, `normalize()`."""
    hours = days = False
    if name == "replace":
        fixed = {k for k, v in kwargs.items() if isinstance(v, Thing) and v.number is not None}
        hours = {"minute", "second", "microsecond"} <= fixed
        days = hours and "hour" in fixed
    elif name == "isoformat":
        hours = as_text(kwargs.get("timespec") or (args[1] if len(args) > 1 else None)) == "hours"
    elif name == "floor":
        unit = (as_text(args[0]) if args else None) or ""
        hours, days = unit in ("h", "H", "1h", "1H", "hour"), unit in ("d", "D", "1D", "day")
    else:
        days = True
    if days:
        return facts.minus("clock", "hour").plus("date")
    return facts.plus("hour") if hours else facts


def template_syntax(made: Made) -> Syntax | None:
    """How the text of a template object is written."""
    if made.kind in ("string.Template",):
        return "dollar"
    if made.kind in (
        "jinja2.Template",
        "jinja2.environment.Template",
        "jinja2.nativetypes.NativeTemplate",
    ):
        return "jinja"
    return None
