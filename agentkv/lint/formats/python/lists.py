"""Methods of lists and dicts."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.bits import Lit, as_text
from agentkv.lint.formats.python.copies import moving, rewritten
from agentkv.lint.formats.python.facts import FIXED, join
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.texts import TextCalls
from agentkv.lint.formats.python.values import (
    Dict,
    Item,
    Made,
    Many,
    Str,
    Thing,
    Value,
    name_of,
    ops_of,
    walk,
)
from agentkv.lint.template import HistoryOp


class ListCalls(TextCalls):
    """Evaluates what is done to lists and dicts."""

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
            ops = (*base.ops, *ops_of(args[0]), *self._remade(args[0], node))
            made = replace(base, items=items, ops=tuple(dict.fromkeys(ops)))
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

    def _remade(self, message: Value, node: ast.Call) -> tuple[HistoryOp, ...]:
        """What is done to a message as it is appended: an answer of the model is changed a little,
        or an earlier message is copied with another content."""
        given = node.args[0]
        if rewritten(given, self._turns()) and moving(self.loops[-1]):
            return (self.operation("edited_in_place", node, self.module.code(node)[:80]),)
        if not isinstance(message, Dict) or as_text(message.get("role")) not in (
            "assistant",
            "model",
        ):
            return ()
        content = message.get("content")
        if isinstance(content, Thing) and content.fn == "strip":
            return (self.operation("reserialised", node, "white space is stripped"),)
        calls = message.get("tool_calls")
        fresh = isinstance(calls, Many) and any(
            "random_id" in v.facts.traits and v.facts.known
            for v in walk(calls)
            if isinstance(v, Thing | Str)
        )
        return (
            (self.operation("reserialised", node, "ids of calls are made anew"),) if fresh else ()
        )

    def _turns(self) -> set[str]:
        """Names of the messages over which the innermost loop goes."""
        loop = self.loops[-1] if self.loops else None
        if not isinstance(loop, ast.For | ast.AsyncFor) or not re.search(
            r"message|history|conversation|msgs|turns", ast.unparse(loop.iter), re.IGNORECASE
        ):
            return set()
        return {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}

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
                or (at is None and _from_the_end(node.args[0]))
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
            if name == "items" and 0 < len(base.entries) <= 12 and all(e.key for e in base.entries):
                pairs = [
                    (Item(Str((Lit(e.key or ""),)), None), Item(e.value, e.where))
                    for e in base.entries
                ]
                return Many(tuple(Item(Many(p, "tuple"), None) for p in pairs), "list")
            return Thing(base.facts, name_of(func.value))
        return Thing(base.facts, name_of(func.value))

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


def _from_the_end(index: ast.expr) -> bool:
    """`len(messages) - 2`: a place that moves with every message."""
    match index:
        case ast.BinOp(left=ast.Call(func=ast.Name(id="len")), op=ast.Sub(), right=right):
            return not (isinstance(right, ast.Constant) and right.value == 0)
    return False


def in_order(value: Value, kwargs: dict[str, Value]) -> Value:
    if isinstance(value, Many):
        return _sorted_many(value, kwargs)
    facts = value.facts
    if _scored(kwargs):
        facts = facts.plus("score_order", "tie_order")
    else:
        facts = facts.minus(
            "set_order", "listing", "completion_order", "shuffled", "score_order", "tie_order"
        )
    if isinstance(value, Thing):
        return replace(value, facts=facts)
    return Thing(facts)


def _sorted_many(value: Many, kwargs: dict[str, Value]) -> Many:
    if _scored(kwargs):
        return replace(
            value,
            extra=join(
                [*([value.extra] if value.extra else []), FIXED.plus("tie_order", "score_order")]
            ),
        )
    extra = value.extra.minus("shuffled", "listing") if value.extra else None
    items = tuple(
        replace(i, loop=i.loop.minus("set_order", "listing", "completion_order", "shuffled"))
        if i.loop is not None
        else i
        for i in value.items
    )
    return replace(value, items=items, kind="list", extra=extra)


def _scored(kwargs: dict[str, Value]) -> bool:
    key = kwargs.get("key")
    if not isinstance(key, Made) or key.kind != "lambda":
        return False
    name = getattr(key.args[0], "name", "") if key.args else ""
    return bool(re.search(r"score|count|freq|weight|distance|similarity|relevance|rank", str(name)))
