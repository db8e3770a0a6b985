"""Builtins and functions of libraries."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python import sources
from agentkv.lint.formats.python.access import READ_AGAIN
from agentkv.lint.formats.python.bits import Bits, Lit, Slot, as_text, change
from agentkv.lint.formats.python.expressions import HUB
from agentkv.lint.formats.python.facts import FIXED, UNKNOWN, Facts, fact, join, rank
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.lists import in_order
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.objects import ObjectCalls
from agentkv.lint.formats.python.own import result_of
from agentkv.lint.formats.python.values import (
    Dict,
    Entry,
    Fn,
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

_DATABASE = re.compile(
    r"\.(?:fetchone|fetchall|fetchval|fetchrow|fetch_one|fetch_all|fetch_val|find_one|execute|scalar|scalars|scalar_one|query|first|objects\.get)$"
)

_HUB = re.compile(
    r"(?:^|\.)(?:hub\.pull|pull_prompt|get_prompt|prompts\.get|load_prompt|fetch_prompt)$"
)

_SEARCH = re.compile(
    r"(?:similarity_search|get_relevant_documents|retrieve|search|query_points|max_marginal|rerank|as_retriever|_search)"
)

_ASKED = frozenset(["invoke", "ainvoke", "query", "aquery", "run", "__call__"])
_RETRIEVER = re.compile(r"retriever\.\w+$")

_RANKED = re.compile(
    r"similarity_search|get_relevant_documents|retrieve|query_points|max_marginal|rerank"
    r"|(?:vector|hybrid|semantic|knn|dense)_search"
)
_SELECT = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
_ORDERED = re.compile(
    r"\border\s+by\b|\blimit\s+1\b(?!\d)|\b(?:count|sum|avg|max|min)\s*\(", re.IGNORECASE
)
_ONE_ROW = frozenset(
    [
        "fetchone",
        "fetch_one",
        "fetchrow",
        "fetchval",
        "fetch_val",
        "first",
        "scalar",
        "scalar_one",
        "one",
        "one_or_none",
        "find_one",
    ]
)


_QUERIES = frozenset(
    ["fetch", "execute", "query", "all", "run", "sql", "read_sql", "read_sql_query", "select"]
)


class LibraryCalls(ObjectCalls):
    """Evaluates calls of functions that are no part of the project."""

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
            return in_order(first, kwargs)
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
            if isinstance(first, Many):
                # A list shows its elements by their `repr`.
                objects = [i.value for i in first.items if isinstance(i.value, Obj)]
                if objects:
                    return self.shown(objects[0], node.args[0])
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
            return Fn(first.owner, (*first.bound, *args[1:]), (*first.named, *kwargs.items()))
        if dotted.startswith("collections.Counter"):
            # Known to be counts: not guessed from what they are called.
            return Thing(replace(join([a.facts for a in args]), known=True), "counts")
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
            facts = join([a.facts for a in args])
            if facts.traits & {"clock"}:
                facts = facts.minus("clock", "date").plus("random_id")
            return Thing(facts, name_of(node))
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
        again = isinstance(value, Thing) and value.fn == "loads"
        if again or (
            isinstance(inner, ast.Call) and name_of(inner.func).rpartition(".")[2] == "loads"
        ):
            op = self.operation("reserialised", node, self.module.code(node)[:80])
            return Thing(facts, name, ops=(op,))
        keys = next((k.value for k in node.keywords if k.arg == "sort_keys"), None)
        sort = isinstance(keys, ast.Constant) and bool(keys.value)
        if (
            isinstance(value, Thing)
            and value.facts.level != "build"
            and not sort
            and (_mapping(node.args[0]) or "tools" in facts.traits)
        ):
            facts = facts.plus("unsorted_json")
        if isinstance(value, Many):
            loose = [i.value for i in value.items if isinstance(i.value, Thing)]
            if loose and not sort and any(v.facts.level != "build" for v in loose):
                facts = facts.plus("unsorted_json")
        return Thing(facts, name, getattr(value, "param", None), ops_of(value))

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
            return Thing(Facts("deploy", why=f"{HUB} {often}", known=True), name)
        tail = callee.rpartition(".")[2]
        if _SIGNED.search(tail):
            return Thing(fact("call", f"{tail}()", "signed_url"), name)
        if tail == "trim_messages":
            return self._trimmed(node, args, kwargs, base)
        if tail == "loads" and node.args and name_of(node.args[0]).endswith("arguments"):
            return Thing(join([a.facts for a in args]), name, fn="loads")
        known = sources.of_call(callee)
        if known is not None:
            return Thing(known, name)
        if tail in ("list_tools", "get_tools", "load_mcp_tools", "alist_tools"):
            return Thing(fact("session", f"{tail}()", "listing", "tools"), name)
        if (
            tail in ("compile", "format", "render", "to_string", "scalar_one", "all", "one")
            and isinstance(base, Thing)
            and base.facts.why.endswith(READ_AGAIN)
        ):
            return base
        if tail in _QUERIES and args and _unordered(args[0]):
            found = replace(guess(name), why=f"a database, read {often}")
            return Thing(found.plus("listing"), name)
        if tail in ("safe_load", "load", "full_load", "loads") and args:
            source = args[0]
            if isinstance(source, Made) and source.kind == "open":
                return self._file(source.facts, node, source)
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
        if _SEARCH.search(tail) or (tail in _ASKED and _RETRIEVER.search(callee)):
            found = Facts("turn", frozenset({"context"}), f"{tail}()", False)
            return Thing(found.plus("score_order") if _RANKED.search(tail) else found, name)
        if _DATABASE.search("." + callee):
            found = replace(guess(name), why=f"a database, read {often}")
            unordered = any(_unordered(a) for a in args) or (
                base is not None and "listing" in base.facts.traits
            )
            if unordered and tail not in _ONE_ROW:
                found = found.plus("listing")
            return Thing(found, name)
        return Thing(result_of(tail, facts, name), name, ops=ops)


def _unordered(value: Value) -> bool:
    """Whether a value is a query for rows whose order the database may choose."""
    if not isinstance(value, Str):
        return False
    text = "".join(b.value if isinstance(b, Lit) else _inner(b) for b in value.bits)
    return bool(_SELECT.match(text)) and not _ORDERED.search(text)


def _inner(slot: Slot) -> str:
    return "".join(b.value if isinstance(b, Lit) else _inner(b) for b in slot.inner)


def _mapping(node: ast.expr) -> bool:
    """Whether what is dumped may be a runtime dict: no schema, no model, no literal."""
    code = ast.unparse(node)
    return not re.search(
        r"model_dump|schema\(|schema_json|\.dict\(\)|asdict|to_dict|__dict__|OrderedDict|sorted\(|\.text|content|question|query",
        code,
    )


def _dedented(text: Str) -> Str:
    """A text whose lines were filled in before their common indentation was taken off."""

    def how(slot: Slot) -> Bits:
        if rank(slot.facts.level) < rank("unknown"):
            return (slot,)
        return (replace(slot, facts=slot.facts.plus("dedented")),)

    return Str(change(text.bits, how), text.use, text.name)
