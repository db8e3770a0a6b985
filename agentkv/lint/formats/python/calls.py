"""What a call gives: text methods, list methods, libraries, functions of the project."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

from agentkv.lint.formats.python import sources
from agentkv.lint.formats.python.bits import Bits, Lit, Slot, as_text, change, size, tight
from agentkv.lint.formats.python.expressions import Expressions
from agentkv.lint.formats.python.facts import FIXED, UNKNOWN, Facts, Where, fact, join, rank
from agentkv.lint.formats.python.fields import Syntax
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.merge import NONE, item_bits
from agentkv.lint.formats.python.module import Function
from agentkv.lint.formats.python.program import Site
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
)
from agentkv.lint.template import Level

_KEEP_TEXT = frozenset(
    [
        "strip",
        "lstrip",
        "rstrip",
        "upper",
        "lower",
        "title",
        "capitalize",
        "expandtabs",
        "removeprefix",
        "removesuffix",
        "encode",
        "decode",
        "casefold",
        "swapcase",
    ]
)
_CACHED = re.compile(
    r"(?:^|\.)(?:lru_cache|cache|cached_property|memoize|memoized|memoise|cached|cache_data|cache_resource|alru_cache|async_lru)\b"
)
_TIMED = re.compile(r"ttl|timed|expir", re.IGNORECASE)
_FAN = re.compile(
    r"(?:asyncio|anyio)\.(?:gather|wait|as_completed)$|tqdm_asyncio\.gather$|^gather$"
)
_POOL = re.compile(
    r"(?:executor|pool|ex|tp|thread_?pool|p)\.(?:map|submit|starmap|imap|imap_unordered|apply_async|map_async)$",
    re.I,
)
_DATES = frozenset(
    f"datetime.{kind}"
    for kind in (
        "date",
        "datetime",
        "time",
        "timedelta",
        "timezone",
        "datetime.fromisoformat",
        "date.fromisoformat",
        "datetime.strptime",
        "datetime.fromtimestamp",
        "datetime.combine",
    )
)
_SIGNED = re.compile(r"presigned_url|signed_url|generate_sas|sign_url|create_signed|presign")
_ENCODED = frozenset({"getvalue", "tobytes", "getbuffer", "resize", "thumbnail", "imencode"})
_DATABASE = re.compile(
    r"\.(?:fetchone|fetchall|fetchval|fetchrow|find_one|execute|scalar|scalars|scalar_one|query|first|objects\.get)$"
)
_HUB = re.compile(
    r"(?:^|\.)(?:hub\.pull|pull_prompt|get_prompt|prompts\.get|load_prompt|fetch_prompt)$"
)
_ENVIRONMENT = re.compile(
    r"(?:^|\.)(?:Environment|SandboxedEnvironment|NativeEnvironment|ImmutableSandboxedEnvironment)$"
)
_SEARCH = re.compile(
    r"(?:similarity_search|get_relevant_documents|retrieve|search|query_points|max_marginal|rerank|as_retriever|_search)"
)


class Calls(Expressions):
    """Evaluates calls."""

    fan: int = 0

    def call(self, node: ast.Call) -> Value:
        callee = self.callee(node.func)
        if _quiet(callee):
            self._arguments(node)  # a call of a model may be among them
            return Thing()
        fanned = bool(_FAN.search(callee)) and not _rest(node)
        if fanned:
            self.fan += 1
        args, kwargs, nodes = self._arguments(node)
        if fanned:
            self.fan -= 1
        if _POOL.search(callee):
            self._pooled(node, callee, args)
        made = self._called(node, callee, args, kwargs, nodes)
        self.sent(node, callee, args, kwargs)
        return made

    def callee(self, func: ast.expr) -> str:
        """The dotted name of what is called, imports resolved where the first name is one."""
        parts: list[str] = []
        node = func
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            root = node.id
            if root in self.module.imports and root not in self.env:
                root = self.module.imports[root]
            parts.append(root)
        elif isinstance(node, ast.Call):
            parts.append(self.callee(node.func) + "()")
        elif isinstance(node, ast.Subscript):
            parts.append(name_of(node) or "item")
        return ".".join(reversed(parts))

    def _arguments(
        self, node: ast.Call
    ) -> tuple[tuple[Value, ...], dict[str, Value], dict[str, ast.expr]]:
        args: list[Value] = []
        for a in node.args:
            value = self.value(a)
            if isinstance(a, ast.Starred) and isinstance(value, Many):
                args += [i.value for i in value.items]
            else:
                args.append(value)
        kwargs: dict[str, Value] = {}
        nodes: dict[str, ast.expr] = {}
        for k in node.keywords:
            value = self.value(k.value)
            if k.arg is None:
                if isinstance(value, Dict):
                    kwargs |= {e.key: e.value for e in value.entries if e.key}
                elif isinstance(k.value, ast.Call) and name_of(k.value.func) in ("locals", "vars"):
                    kwargs |= {n: v for n, v in self.env.items() if n.isidentifier()}
                continue
            kwargs[k.arg] = value
            nodes[k.arg] = k.value
        return tuple(args), kwargs, nodes

    def _called(
        self,
        node: ast.Call,
        callee: str,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        nodes: dict[str, ast.expr],
    ) -> Value:
        func = node.func
        if isinstance(func, ast.Name) and func.id not in self.env:
            made = self._builtin(func.id, node, args, kwargs)
            if made is not None:
                return made
        base: Value | None = None
        if isinstance(func, ast.Attribute):
            base = self.value(func.value)
            made = self._method(node, func, base, args, kwargs, nodes)
            if made is not None:
                return made
        target = (
            self.value(func) if not isinstance(func, ast.Attribute) or base is not None else None
        )
        if isinstance(target, Fn):
            function = self.program.function(target.owner)
            if function is not None:
                return self._own_call(function, target, args, kwargs, node)
        if isinstance(target, Cls):
            return self._instance(target, args, kwargs, node)
        if isinstance(target, Made) and target.kind == "lambda" and target.args:
            return target.args[0]
        if isinstance(target, Lib):
            made = self._library_call(target.dotted, node, args, kwargs)
            if made is not None:
                return made
        return self._opaque(callee, node, args, kwargs, base)

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
        made = self.call_function(function, given, kwargs, where)
        match node.func:
            case ast.Attribute(value=ast.Name(id="self")) if function.cls is not None:
                for other in self.program.overrides(function):
                    more = self.call_function(other, given, kwargs, where)
                    if rank(more.facts.level) > rank(made.facts.level):
                        made = more
        return made

    # -- text ------------------------------------------------------------------------------------

    def _method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        base: Value,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        nodes: dict[str, ast.expr],
    ) -> Value | None:
        name = func.attr
        if isinstance(base, Str):
            return self._text_method(node, func, base, args, kwargs, nodes)
        if isinstance(base, Many):
            return self._list_method(node, func, base, args, kwargs)
        if isinstance(base, Dict):
            return self._dict_method(func, base, args)
        if isinstance(base, Made):
            return self._made_method(node, name, base, args, kwargs, nodes)
        if isinstance(base, Thing):
            return self._thing_method(node, func, base, args, kwargs)
        return None

    def _text_method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        base: Str,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        nodes: dict[str, ast.expr],
    ) -> Value:
        name = func.attr
        if name == "format":
            named = {str(i): v for i, v in enumerate(args)} | kwargs
            shown = {str(i): n for i, n in enumerate(node.args)} | nodes
            return self.filled(base, "format", named, shown)
        if name == "format_map":
            arg = args[0] if args else NONE
            named = {e.key: e.value for e in arg.entries if e.key} if isinstance(arg, Dict) else {}
            return self.filled(base, "format", named)
        if name == "join" and len(args) == 1:
            return self._join(base, args[0], node)
        if name == "replace" and len(args) >= 2:
            return self._replaced(base, args[0], args[1], node)
        if name in _KEEP_TEXT:
            return base if name not in ("strip", "lstrip", "rstrip") or args else _strip(base, name)
        if name in ("splitlines", "split"):
            return Thing(base.facts, name_of(func.value))
        return Thing(base.facts, name_of(func.value))

    def _join(self, separator: Str, what: Value, node: ast.Call) -> Value:
        between = as_text(separator) or ""
        if not isinstance(what, Many):
            if isinstance(what, Str):
                return Thing(what.facts)
            if isinstance(what, Dict):
                return Thing(what.facts, name_of(node))
            return Thing(
                what.facts,
                what.name if isinstance(what, Thing) else name_of(node),
                getattr(what, "param", None),
            )
        out: list[Lit | Slot] = []
        for i, item in enumerate(what.items):
            bits = self._item_bits(item)
            gap: Bits = (Lit(between),) if between else ()
            if item.cond is not None or item.loop is not None:
                out += item_bits(item, tight((*gap, *bits)) if i else tight((*bits, *gap)))
            else:
                out += [*gap, *bits] if i else bits
        facts = what.facts
        if what.kind == "set" or what.extra is not None:
            arg = node.args[0]
            slot = Slot(
                self.module.code(node),
                name_of(arg) or "set",
                facts,
                self.module.where(node),
                tight(out),
            )
            return Str((slot,))
        return Str(tight(out))

    def _item_bits(self, item: Item) -> Bits:
        if isinstance(item.value, Str) and not _named_expr(self.module.text, item):
            return item.value.bits
        expr = self.module.text[item.where.start : item.where.end] if item.where else ""
        name = getattr(item.value, "name", "") or expr
        if item.where is not None and item.where.module != self.module.path:
            return as_bits(item.value, Slot(name, name, item.value.facts, None))
        return as_bits(item.value, Slot(expr, name, item.value.facts, item.where))

    def _replaced(self, base: Str, old: Value, new: Value, node: ast.Call) -> Str:
        needle = as_text(old)
        if not needle or not re.search(r"\w", needle):
            return base
        out: list[Lit | Slot] = []
        for bit in base.bits:
            if isinstance(bit, Slot):
                out.append(bit)
                continue
            at = 0
            while (hit := bit.value.find(needle, at)) >= 0:
                if hit > at:
                    out.append(bit.part(at, hit))
                where = bit.part(hit, hit + len(needle)).where
                name = re.sub(r"\W+", " ", needle).strip().replace(" ", "_")
                label = name_of(node.args[1]) or name
                slot = Slot(needle, label or name, new.facts, where)
                out += as_bits(new, slot)
                at = hit + len(needle)
            if at < len(bit.value):
                out.append(bit.part(at, len(bit.value)))
        if base.use is not None:
            base.use.formatted = True
            base.use.bindings.setdefault(needle.strip("{}$<>[] "), []).append(new)
        return Str(tight(out), None, base.name)

    # -- lists and dicts -------------------------------------------------------------------------

    def _list_method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        base: Many,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> Value | None:
        key, name = self.key_of(func.value), func.attr
        made: Many | None = None
        if name in ("append", "add", "appendleft") and args:
            item = Item(args[0], self.module.where(node.args[0]))
            items = (item, *base.items) if name == "appendleft" else (*base.items, item)
            made = replace(
                base, items=items, ops=tuple(dict.fromkeys((*base.ops, *ops_of(args[0]))))
            )
        elif name in ("extend", "update") and args:
            more = self.extended(base, args[0], node.args[0])
            made = more if isinstance(more, Many) else None
        elif name == "insert" and len(args) == 2:
            made = self._insert(base, args, node)
        elif name == "copy":
            return base
        elif name == "sort":
            made = _sorted_many(base, kwargs)
        elif name == "reverse":
            made = replace(base, items=base.items[::-1])
        elif name in ("pop", "remove", "clear", "popleft"):
            return self._removed(node, func, base, args)
        elif name in ("index", "count"):
            return Thing(base.facts)
        if made is None:
            return Thing(base.facts, name_of(func.value)) if name not in ("format",) else None
        if key is not None:
            self.env[key] = made
        else:
            self.grown(func.value, made)
        return NONE

    def grown(self, target: ast.expr, value: Value) -> None:
        """A list that is no plain variable was changed in place."""

    def _insert(self, base: Many, args: tuple[Value, ...], node: ast.Call) -> Many:
        at = args[0].number if isinstance(args[0], Thing) else None
        item = Item(args[1], self.module.where(node.args[1]))
        ops = base.ops
        if self.message_like(args[1]) and base.items:
            first = base.items[0]
            static = args[1].facts.level in ("build", "deploy")
            if at == 0 and not (static and not self.loops):
                ops += (self.operation("inserted_front", node, self.module.code(node)[:80]),)
            elif (
                (isinstance(at, int) and at > 0 and len(base.items) > at)
                or (
                    isinstance(at, int)
                    and at > 0
                    and (first.spread or any(i.spread for i in base.items))
                )
                or (isinstance(at, int) and at < 0)
            ):
                ops += (self.operation("inserted_mid", node, self.module.code(node)[:80]),)
        index = int(at) if isinstance(at, int | float) else len(base.items)
        items = list(base.items)
        items.insert(index, item)
        return replace(base, items=tuple(items), ops=ops)

    def message_like(self, value: Value) -> bool:
        """Whether a value is a message: a dict with a role, a message object, a (role, text) pair."""
        if isinstance(value, Dict):
            return value.get("role") is not None or value.get("type") is not None
        if isinstance(value, Made):
            return value.tail.endswith("Message") or "Message" in value.kind
        if isinstance(value, Many):
            return value.kind == "tuple" and len(value.items) == 2
        return False

    def _removed(
        self, node: ast.Call, func: ast.Attribute, base: Many, args: tuple[Value, ...]
    ) -> Value:
        key = self.key_of(func.value)
        at = args[0].number if args and isinstance(args[0], Thing) else None
        made = base
        if func.attr == "clear":
            made = replace(base, items=())
        elif func.attr in ("pop", "popleft") and self.conversation(func.value, base):
            front = func.attr == "popleft" or (isinstance(at, int) and at >= 0)
            if front and not self._thinned():
                op = self.operation("front_truncation", node, self.module.code(node))
                made = replace(base, ops=(*base.ops, op))
        if key is not None:
            self.env[key] = made
        return Thing(base.facts, name_of(func.value))

    def _thinned(self) -> bool:
        """Whether a cut happens only near a budget of tokens."""
        return any(
            re.search(r"token|budget|context_window|limit", ast.unparse(t), re.IGNORECASE)
            and "len(" not in ast.unparse(t)
            for t, _ in self.tests
        ) or any(
            isinstance(loop, ast.While) and re.search(r"token|budget", ast.unparse(loop.test), re.I)
            for loop in self.loops
        )

    def _dict_method(
        self, func: ast.Attribute, base: Dict, args: tuple[Value, ...]
    ) -> Value | None:
        name, key = func.attr, self.key_of(func.value)
        if name == "get" and args:
            text = as_text(args[0])
            found = base.get(text) if text else None
            return found if found is not None else Thing(base.facts, text or "")
        if name == "copy":
            return base
        if name == "update" and args and isinstance(args[0], Dict) and key is not None:
            made = base
            for e in args[0].entries:
                if e.key:
                    made = made.with_entry(e.key, e.value, e.where)
            self.env[key] = made
            return NONE
        if name in ("values", "keys", "items"):
            items = tuple(Item(e.value, e.where) for e in base.entries)
            if name == "values":
                return Many(items, "list")
            return Thing(base.facts, name_of(func.value))
        return Thing(base.facts, name_of(func.value))

    # -- objects ---------------------------------------------------------------------------------

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
        if syntax is not None and isinstance(text, Str):
            if name in ("substitute", "safe_substitute", "render", "render_async"):
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
            _CACHED.search(d) for d in self.function.decorators
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
        if name in (
            "strftime",
            "format",
            "isoformat",
            "date",
            "time",
            "timestamp",
            "ctime",
            "astimezone",
            "replace",
            "to_iso8601_string",
            "humanize",
            "to_date_string",
            "format_datetime",
        ):
            if base.facts.traits & {"clock", "date"}:
                return self._time_method(node, name, base, args)
        if base.fn.startswith("pathlib.Path") or name in ("iterdir", "rglob"):
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
        if name in _KEEP_TEXT or name in ("hex", "splitlines", "split", "isoformat", "strip"):
            return Thing(base.facts, base.name, base.param)
        return None

    def grow_unknown(
        self, node: ast.Call, func: ast.Attribute, base: Thing, args: tuple[Value, ...]
    ) -> Value:
        """A list that came from elsewhere is changed: what was there stays as a run of elements."""
        key = self.key_of(func.value)
        assert key is not None
        name = func.attr
        if name in ("append", "extend", "insert") and args:
            run = Many((Item(base, self.module.where(func.value), spread=True),), "list", base.ops)
            self.env[key] = run
            return self._list_method(node, func, run, args, {}) or NONE
        made = self._removed(
            node, func, Many((Item(base, None, spread=True),), "list", base.ops), args
        )
        found = self.env.get(key)
        if isinstance(found, Many):
            self.env[key] = replace(base, ops=found.ops)
        return made

    def _time_method(
        self, node: ast.Call, name: str, base: Thing, args: tuple[Value, ...]
    ) -> Thing:
        facts = base.facts
        if name == "date" or name == "to_date_string":
            facts = facts.minus("clock").plus("date")
        elif name in ("strftime", "format") and args:
            facts = sources.with_format(facts, as_text(args[0]))
        return Thing(facts, base.name, fn=base.fn)

    # -- builtins and libraries ------------------------------------------------------------------

    def _builtin(
        self, name: str, node: ast.Call, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Value | None:
        first = args[0] if args else None
        if first is None:
            if name in ("list", "tuple", "set", "frozenset"):
                return Many((), "set" if name in ("set", "frozenset") else name)
            if name == "dict":
                return Dict(
                    tuple(
                        Entry(k.arg, kwargs[k.arg], self.module.where(k.value))
                        for k in node.keywords
                        if k.arg and k.arg in kwargs
                    ),
                    self.module.where(node),
                )
            return Thing(fact("turn", "input()", "question"), "input") if name == "input" else None
        if name == "sorted":
            return _sorted(first, kwargs)
        if name in ("list", "tuple", "reversed", "iter"):
            if isinstance(first, Many):
                return replace(first, kind=first.kind if first.kind == "set" else "list")
            return first if isinstance(first, Thing) else Thing(first.facts, name_of(node.args[0]))
        if name in ("set", "frozenset"):
            if isinstance(first, Many):
                return replace(first, kind="set")
            return Thing(first.facts.plus("set_order"), name_of(node.args[0]))
        if name in ("str", "repr", "format", "ascii"):
            if isinstance(first, Str):
                return first
            if isinstance(first, Obj | Made):
                return self.shown(first, node.args[0])
            if name == "format" and len(args) > 1 and first.facts.traits & {"clock", "date"}:
                return Thing(
                    sources.with_format(first.facts, as_text(args[1])), name_of(node.args[0])
                )
            if isinstance(first, Thing):
                return replace(first, ops=())
            return Thing(first.facts, name_of(node.args[0]))
        if name == "input":
            return Thing(fact("turn", "input()", "question"), "input")
        if name == "open":
            return self.joined(Made("open", (), {}, self.module.where(node), level=FIXED), first)
        if name == "id":
            return Thing(fact("session", "id()", "object_repr"), name_of(node.args[0]))
        if name == "hash":
            return Thing(
                join([first.facts, fact("session", "hash()", "host_state")]), name_of(node.args[0])
            )
        if name == "dict" and isinstance(first, Dict):
            return first
        if name == "next" or name == "enumerate" or name == "zip" or name in ("map", "filter"):
            facts = join([a.facts for a in args])
            return Thing(facts, name_of(node.args[-1]))
        if name == "getattr" and len(args) >= 2:
            text = as_text(args[1])
            return self._part(first, text or "", text or name_of(node)) if text else None
        if name in (
            "len",
            "int",
            "float",
            "round",
            "abs",
            "min",
            "max",
            "sum",
            "any",
            "all",
            "bool",
            "isinstance",
            "hasattr",
        ):
            return Thing(
                join([a.facts for a in args]).minus("listing", "set_order", "history"),
                name_of(node.args[0]),
            )
        return None

    def _library_call(
        self, dotted: str, node: ast.Call, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Value | None:
        tail = dotted.rpartition(".")[2]
        first = args[0] if args else None
        facts = sources.of_call(dotted)
        if facts is not None:
            if facts.traits & {"random_content", "shuffled"} and self.module.seeded:
                return Thing(fact("build", "seeded"), name_of(node))
            if dotted in ("time.strftime", "time.localtime") and first is not None:
                facts = sources.with_format(facts, as_text(first))
            if "locale" in facts.traits and args:
                facts = join([facts, *(a.facts for a in args)])
            if "listing" in facts.traits and args and rank(args[0].facts.level) > rank("session"):
                facts = replace(facts, level=args[0].facts.level)
            if "shuffled" in facts.traits and tail == "shuffle" and node.args:
                self._shuffled(node.args[0], facts)
                return NONE
            return Thing(facts, name_of(node), fn=dotted)
        if tail == "cast" and len(args) == 2:
            return args[1]
        if dotted in _DATES:
            return Thing(join([a.facts for a in (*args, *kwargs.values())]), name_of(node))
        if tail in ("dedent", "cleandoc") and isinstance(first, Str):
            return _dedented(first)
        if tail in ("indent", "fill") and dotted.startswith("textwrap") and first is not None:
            return first
        if (
            dotted in ("json.dumps", "orjson.dumps", "ujson.dumps", "simplejson.dumps")
            and first is not None
        ):
            return self._dumped(first, node, kwargs)
        if dotted in (
            "os.path.join",
            "pathlib.Path",
            "os.path.dirname",
            "os.path.abspath",
            "pathlib.PurePath",
        ):
            facts = join([a.facts for a in args]) if args else FIXED
            if dotted in ("pathlib.Path", "pathlib.PurePath", "os.path.join"):
                made = Made("pathlib.Path", (), {}, self.module.where(node), level=FIXED)
                for arg in args:
                    made = self.joined(made, arg)
                return made
            inner = (
                self.joined(Made("pathlib.Path", (), {}, level=FIXED), args[0]) if args else None
            )
            if inner is not None:
                return inner.parent() if tail == "dirname" else inner
            return Thing(facts, name_of(node), fn=dotted)
        if dotted in ("copy.deepcopy", "copy.copy") and first is not None:
            return first
        if dotted == "functools.partial" and isinstance(first, Fn):
            return Fn(first.owner, (*first.bound, *args[1:]))
        if dotted.startswith("collections.Counter"):
            return Thing(join([a.facts for a in args]), name_of(node))
        if dotted.startswith("collections.deque"):
            limit = kwargs.get("maxlen") or (args[1] if len(args) > 1 else None)
            name = name_of(node.args[0]) if node.args else "deque"
            if limit is not None and limit != NONE:
                op = self.operation("front_truncation", node, "a deque of fixed length")
                return Many((), "list", (op,))
            return first if isinstance(first, Many) else Thing(UNKNOWN, name)
        if dotted.startswith("itertools."):
            return Thing(join([a.facts for a in args]), name_of(node))
        if dotted in ("base64.b64encode", "base64.standard_b64encode", "base64.urlsafe_b64encode"):
            return Thing(join([a.facts for a in args]).plus("image"), name_of(node))
        if dotted.startswith("cv2.imencode"):
            return Thing(join([a.facts for a in args]).plus("reencoded"), name_of(node))
        if dotted.startswith("hashlib."):
            return Thing(join([a.facts for a in args]), name_of(node))
        if tail == "sub" and dotted == "re.sub" and len(args) >= 3:
            return self._substituted(node, args)
        if dotted in ("builtins.str",):
            return first
        if tail[:1].isupper() or "." in dotted:
            return self.framework_call(dotted, node, args, kwargs)
        return None

    def framework_call(
        self, dotted: str, node: ast.Call, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Value | None:
        """A call of a library's class or function."""
        return None

    def _shuffled(self, target: ast.expr, facts: Facts) -> None:
        key = self.key_of(target)
        if key is None:
            return
        old = self.env.get(key) or (self.look(key) if "." not in key else Thing())
        if isinstance(old, Many):
            self.env[key] = replace(old, extra=join([facts, *([old.extra] if old.extra else [])]))
        else:
            self.env[key] = Thing(join([old.facts, facts]), key)

    def _substituted(self, node: ast.Call, args: tuple[Value, ...]) -> Value:
        pattern, source = as_text(args[0]) or "", args[2]
        if re.search(r"think|reasoning|scratchpad", pattern):
            op = self.operation("reasoning_stripped", node, pattern)
            return Thing(source.facts, name_of(node.args[2]), ops=(*ops_of(source), op))
        return source if isinstance(source, Str) else Thing(source.facts, name_of(node.args[2]))

    def _dumped(self, value: Value, node: ast.Call, kwargs: dict[str, Value]) -> Value:
        name = name_of(node.args[0])
        facts = value.facts
        inner = node.args[0]
        if isinstance(inner, ast.Call) and name_of(inner.func).rpartition(".")[2] == "loads":
            op = self.operation("reserialised", node, self.module.code(node)[:80])
            return Thing(facts, name, ops=(op,))
        keys = next((k.value for k in node.keywords if k.arg == "sort_keys"), None)
        sort = isinstance(keys, ast.Constant) and bool(keys.value)
        if (
            isinstance(value, Thing)
            and value.facts.level != "build"
            and not sort
            and _mapping(node.args[0])
        ):
            facts = facts.plus("unsorted_json")
        if isinstance(value, Many):
            loose = [i.value for i in value.items if isinstance(i.value, Thing)]
            if loose and not sort and any(v.facts.level != "build" for v in loose):
                facts = facts.plus("unsorted_json")
        return Thing(facts, name, getattr(value, "param", None), ops_of(value))

    # -- the project's own functions -------------------------------------------------------------

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
        from agentkv.lint.formats.python.frame import run_function

        bound = bind(function, args, kwargs)
        sites = self.program.sites.setdefault(function.owner, [])
        if len(sites) < 200:
            sites.append(Site(self.owner, bound, where, bool(self.loops), fan=self.fan > 0))
        frame = run_function(self.program, function)
        if not frame.done or not frame.returns:
            return Thing(_helper(function, bound), function.name)
        value = best_return([v for v, _ in frame.returns])
        value = substitute(value, function.owner, bound)
        if isinstance(value, Str) and len(value.bits) == 1 and isinstance(value.bits[0], Slot):
            only = value.bits[0]
            if not only.inner:
                value = Thing(only.facts, only.name, only.param)
        cached = [d for d in function.decorators if _CACHED.search(d) and not _TIMED.search(d)]
        if cached:
            return _memoised(value, function, bound)
        if isinstance(value, Thing):
            facts = value.facts
            if facts.known and rank(facts.level) > rank("unknown"):
                if function.owner.rpartition(":")[0] != self.module.path:
                    facts = facts.plus("via_helper")
                facts = facts.by(f"{function.name}()")
            elif facts.level == "unknown" and value.param is None:
                facts = _helper(function, bound)
            if facts.made is None or facts.made.module != self.module.path:
                facts = replace(facts, made=None)
            return replace(value, facts=facts)
        return value

    def _pooled(self, node: ast.Call, callee: str, args: tuple[Value, ...]) -> None:
        if not args or not isinstance(args[0], Fn) or _rest(node):
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
        from agentkv.lint.formats.python.frame import run_function

        run_function(self.program, function)

    def _in_comprehension(self, node: ast.Call) -> bool:
        row = self.module.text[
            max(0, self.module.offsets.start(node) - 200) : self.module.offsets.end(node) + 200
        ]
        return " for " in row

    def _trimmed(
        self, node: ast.Call, args: tuple[Value, ...], kwargs: dict[str, Value], base: Value | None
    ) -> Value:
        """LangChain's `trim_messages`: the newest that fit, from call to call."""
        given = args[0] if args else kwargs.get("messages", NONE)
        strategy = as_text(kwargs.get("strategy")) or "last"
        ops = ops_of(given)
        if strategy == "last":
            ops = (*ops, self.operation("front_truncation", node, "trim_messages"))
        return Thing(replace(given.facts, known=False), "messages", ops=ops)

    # -- everything else -------------------------------------------------------------------------

    def _opaque(
        self,
        callee: str,
        node: ast.Call,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        base: Value | None,
    ) -> Value:
        name = name_of(node)
        often = "at each call" if self.function is not None else "once"
        if callee == "open" or callee.endswith(".open"):
            return Made(
                "open", args, kwargs, self.module.where(node), level=join([a.facts for a in args])
            )
        if _HUB.search(callee):
            return Thing(Facts("deploy", why=f"a prompt hub, read {often}", known=True), name)
        tail = callee.rpartition(".")[2]
        if _SIGNED.search(tail):
            return Thing(fact("call", f"{tail}()", "signed_url"), name)
        if tail == "trim_messages":
            return self._trimmed(node, args, kwargs, base)
        known = sources.of_call(callee)
        if known is not None:
            return Thing(known, name)
        if tail in ("list_tools", "get_tools", "load_mcp_tools", "alist_tools"):
            return Thing(fact("deploy", f"{tail}()", "listing", "tools"), name)
        facts = [v.facts for v in (*args, *kwargs.values())]
        if base is not None and not isinstance(base, Lib):
            facts.append(base.facts)
        ops = tuple(op for v in (*args, *([base] if base is not None else [])) for op in ops_of(v))
        if tail in ("from_template", "from_messages") or (
            tail[:1].isupper() and not isinstance(base, Thing)
        ):
            made = self.framework_call(callee, node, args, kwargs)
            if made is not None:
                return made
        if _SEARCH.search(tail):
            return Thing(Facts("turn", frozenset({"context"}), f"{tail}()", False), name)
        if _DATABASE.search("." + callee):
            found = guess(name)
            return Thing(replace(found, why=f"a database, read {often}"), name)
        return Thing(_result(tail, facts, name), name, ops=ops)


def _result(tail: str, facts: list[Facts], name: str) -> Facts:
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
    return _result(function.name, [v.facts for v in bound.values()], function.name)


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


def substitute(value: Value, owner: str, bound: dict[str, Value]) -> Value:
    """A function's result with its parameters replaced by what a call gave."""
    if isinstance(value, Str):
        return Str(substitute_bits(value.bits, owner, bound), value.use, value.name)
    if isinstance(value, Thing):
        if value.param is not None and value.param.owner == owner and value.param.name in bound:
            return bound[value.param.name]
        return value
    if isinstance(value, Many):
        return replace(
            value,
            items=tuple(replace(i, value=substitute(i.value, owner, bound)) for i in value.items),
        )
    if isinstance(value, Dict):
        return Dict(
            tuple(Entry(e.key, substitute(e.value, owner, bound), e.where) for e in value.entries),
            value.where,
        )
    if isinstance(value, Made):
        return replace(
            value,
            args=tuple(substitute(a, owner, bound) for a in value.args),
            kwargs={k: substitute(v, owner, bound) for k, v in value.kwargs.items()},
        )
    return value


def substitute_bits(bits: Bits, owner: str, bound: dict[str, Value]) -> Bits:
    def how(slot: Slot) -> Bits:
        param = slot.param
        if param is None or param.owner != owner or param.name not in bound:
            return (slot,)
        given = bound[param.name]
        if isinstance(given, Thing) and given.facts.level == "unknown" and not given.param:
            return (replace(slot, param=None),)
        return as_bits(given, replace(slot, param=None, facts=replace(slot.facts, known=False)))

    return tight(change(bits, how))


def _dedented(text: Str) -> Str:
    """A text whose lines were filled in before their common indentation was taken off."""

    def how(slot: Slot) -> Bits:
        if rank(slot.facts.level) < rank("unknown"):
            return (slot,)
        return (replace(slot, facts=slot.facts.plus("dedented")),)

    return Str(change(text.bits, how), text.use, text.name)


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


def _sorted(value: Value, kwargs: dict[str, Value]) -> Value:
    if isinstance(value, Many):
        return _sorted_many(value, kwargs)
    facts = value.facts
    if _scored(kwargs):
        facts = facts.plus("score_order", "tie_order")
    else:
        facts = facts.minus("set_order", "listing", "completion_order", "shuffled")
    if isinstance(value, Thing):
        return replace(value, facts=facts)
    return Thing(facts)


def _sorted_many(value: Many, kwargs: dict[str, Value]) -> Many:
    if _scored(kwargs):
        return replace(
            value, extra=join([*([value.extra] if value.extra else []), FIXED.plus("tie_order")])
        )
    extra = value.extra.minus("shuffled", "listing") if value.extra else None
    return replace(value, kind="list", extra=extra)


def _scored(kwargs: dict[str, Value]) -> bool:
    key = kwargs.get("key")
    if not isinstance(key, Made) or key.kind != "lambda":
        return False
    name = getattr(key.args[0], "name", "") if key.args else ""
    return bool(re.search(r"score|count|freq|weight|distance|similarity|relevance|rank", str(name)))


def _strip(base: Str, name: str) -> Str:
    bits = list(base.bits)
    if bits and isinstance(bits[0], Lit) and name != "rstrip":
        first = bits[0]
        cut = len(first.value) - len(first.value.lstrip())
        bits[0] = first.part(cut, len(first.value))
    if bits and isinstance(bits[-1], Lit) and name != "lstrip":
        last = bits[-1]
        bits[-1] = last.part(0, len(last.value.rstrip()))
    return Str(tight(bits), base.use, base.name)


def _mapping(node: ast.expr) -> bool:
    """Whether what is dumped may be a runtime dict: no schema, no model, no literal."""
    code = ast.unparse(node)
    return not re.search(
        r"model_dump|schema|\.dict\(\)|asdict|to_dict|__dict__|OrderedDict|sorted\(|\.text|content|question|query",
        code,
    )


def _named_expr(text: str, item: Item) -> bool:
    where = item.where
    return where is not None and re.fullmatch(r"[\w.]+", text[where.start : where.end]) is not None


def _quiet(callee: str) -> bool:
    """Calls whose arguments are no prompts: logs, prints, warnings."""
    root, _, rest = callee.partition(".")
    tail = callee.rpartition(".")[2]
    if (
        root in ("logging", "logger", "log", "LOG", "LOGGER", "warnings", "_logger", "console")
        and rest
    ):
        return True
    if tail in (
        "debug",
        "info",
        "warning",
        "error",
        "exception",
        "critical",
        "warn",
        "warn_once",
        "info_once",
    ):
        return True
    return callee in (
        "print",
        "pprint.pprint",
        "rich.print",
        "sys.stdout.write",
        "sys.stderr.write",
        "click.echo",
        "typer.echo",
        "typer.secho",
        "click.secho",
    )


def _rest(node: ast.Call) -> bool:
    """Whether a fan-out leaves out the first element, which was sent ahead."""
    return any(
        isinstance(n, ast.Slice)
        and isinstance(n.lower, ast.Constant)
        and n.lower.value == 1
        and n.upper is None
        for n in ast.walk(node)
    )
