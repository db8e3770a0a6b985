"""What is done to a list of messages, or to one of them, in place."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Bits, Slot
from agentkv.lint.formats.python.facts import FIXED
from agentkv.lint.formats.python.values import (
    Dict,
    Entry,
    Item,
    Made,
    Many,
    Str,
    Thing,
    Value,
    add_op,
    as_bits,
    name_of,
)
from agentkv.lint.source import Slice
from agentkv.lint.template import HistoryOp, HistoryOpKind

_MESSAGES = re.compile(r"message|history|conversation|msgs|transcript|dialog|turns", re.IGNORECASE)
_ONE = re.compile(r"^(?:m|msg|message|turn|entry|item|tool_msg|old|prev\w*)$", re.IGNORECASE)

_SET_UP = re.compile(
    r"^_*(?:init|reset|start|set_?up|clear|configure|set_|load|restore|new|begin|create|__)",
    re.IGNORECASE,
)


class History(Base):
    """Assignments into messages."""

    def stored(
        self, target: ast.expr, value: Value, node: ast.stmt, *, added: bool = False
    ) -> None:
        match target:
            case (
                ast.Subscript(value=inner, slice=ast.Constant(value="content" | "text"))
                | ast.Attribute(value=inner, attr="content" | "text")
            ):
                self._content(inner, value, node, added)
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
                self._entry(inner, key, value, node)
            case ast.Subscript(value=inner, slice=index):
                self._element(inner, index, value, node)

    def deleted(self, target: ast.expr) -> None:
        match target:
            case ast.Subscript(value=inner, slice=cut) if self._is_messages(inner):
                old = isinstance(cut, ast.Slice) or (
                    isinstance(cut, ast.Constant) and cut.value != -1
                )
                if old and not self._seldom():
                    self._mark(inner, "front_truncation", target)

    def _is_messages(self, node: ast.expr) -> bool:
        return bool(_MESSAGES.search(name_of(node)))

    def _mark(
        self, messages: ast.expr, kind: HistoryOpKind, node: ast.AST, detail: str = ""
    ) -> None:
        key = self.key_of(messages)
        assert isinstance(node, ast.expr | ast.stmt)
        where = self.module.where(node)
        op = HistoryOp(
            kind=kind,
            slice=Slice(where.start, where.end),
            detail=detail or self.module.code(node).split("\n")[0][:80],
            in_loop=bool(self.loops),
        )
        if key is None:
            return
        old = self.env.get(key)
        if old is None:
            old = self.look(key) if "." not in key else Thing(name=key.removeprefix("self."))
        self.env[key] = add_op(old, op)

    def _content(self, inner: ast.expr, value: Value, node: ast.stmt, added: bool) -> None:
        """`messages[i]["content"] = value`, `message.content = value`."""
        match inner:
            case ast.Subscript(value=messages, slice=index):
                known = self.value(messages)
                if isinstance(index, ast.Constant) and index.value == 0:
                    made_here = isinstance(known, Many) or self._copied(messages)
                    if self.loops or not made_here or self._later(messages):
                        self._mark(messages, "system_mutated", node)
                    self._set_first(messages, value, added)
                elif isinstance(index, ast.UnaryOp):
                    return  # the newest message is still being made
                elif self._is_messages(messages) and not self._seldom():
                    self._mark(messages, "edited_in_place", node)
            case ast.Name(id=name):
                source = self._loop_over(name)
                if source is not None and (self._is_messages(source) or _ONE.match(name)):
                    if self._is_messages(source) and not self._seldom():
                        self._mark(source, "edited_in_place", node)
                else:
                    old = self.env.get(name)
                    if isinstance(old, Dict):
                        self.env[name] = old.with_entry("content", value, self.module.where(node))

    def _later(self, messages: ast.expr) -> bool:
        """Whether an object's own messages are changed by a method that is no set-up."""
        key = self.key_of(messages) or ""
        return (
            key.startswith("self.")
            and self.function is not None
            and not _SET_UP.search(self.function.name)
        )

    def _copied(self, messages: ast.expr) -> bool:
        """Whether a function's list is a copy that it made itself: the conversation keeps its own."""
        if self.function is None or not isinstance(messages, ast.Name):
            return False
        return any(
            isinstance(one, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == messages.id for t in one.targets)
            and _is_copy(one.value)
            for one in ast.walk(self.function.node)
        )

    def _seldom(self) -> bool:
        """Whether this happens only near a limit."""
        return any(
            re.search(r"token|budget|context_window|limit|ratio|too_long", ast.unparse(t), re.I)
            or _against_much(t)
            for t, _ in self.tests
        )

    def _loop_over(self, name: str, depth: int = 0) -> ast.expr | None:
        """What the loop iterates whose variable has this name; of blocks of messages, the messages."""
        for loop in reversed(self.loops):
            if isinstance(loop, ast.For | ast.AsyncFor):
                names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
                if name in names:
                    source = _iterated(loop.iter)
                    if isinstance(source, ast.Name) and _blocks(loop.iter) and depth < 3:
                        return self._loop_over(source.id, depth + 1) or source
                    return source
        return None

    def _set_first(self, messages: ast.expr, value: Value, added: bool) -> None:
        key = self.key_of(messages)
        old = self.env.get(key) if key else None
        if key is None or not isinstance(old, Many) or not old.items:
            return
        first = old.items[0]
        if isinstance(first.value, Dict):
            new = value
            before = first.value.get("content")
            if added and before is not None:
                new = Str((*_text(before), *_text(value)))
            made = first.value.with_entry("content", new, first.where)
            self.env[key] = replace(old, items=(replace(first, value=made), *old.items[1:]))
        elif isinstance(first.value, Made):
            made_message = replace(first.value, args=(value,), kwargs={})
            self.env[key] = replace(old, items=(replace(first, value=made_message), *old.items[1:]))

    def _entry(self, inner: ast.expr, key: str, value: Value, node: ast.stmt) -> None:
        """`payload["system"] = value`."""
        name = self.key_of(inner)
        old = self.env.get(name) if name else None
        where = self.module.where(node)
        if name and isinstance(old, Dict):
            self.env[name] = old.with_entry(key, value, getattr(value, "where", None) or where)
        elif key in ("cache_control", "cachePoint") and isinstance(inner, ast.Subscript):
            self._marked(inner, key, value, node)

    def _marked(self, inner: ast.Subscript, key: str, value: Value, node: ast.stmt) -> None:
        """`messages[-1]["cache_control"] = {...}`, at any depth."""
        root: ast.expr = inner
        path: list[ast.expr] = []
        while isinstance(root, ast.Subscript):
            path.insert(0, root.slice)
            root = root.value
        name = self.key_of(root)
        old = self.env.get(name) if name else None
        if name is None or not isinstance(old, Many) or not old.items:
            return
        index = self.value(path[0])
        at = index.number if isinstance(index, Thing) else None
        if not isinstance(at, int) or not -len(old.items) <= at < len(old.items):
            return
        items = list(old.items)
        target = items[at]
        if isinstance(target.value, Dict):
            made = target.value.with_entry(key, value, self.module.where(node))
            items[at] = replace(target, value=made)
            self.env[name] = replace(old, items=tuple(items))

    def _element(self, inner: ast.expr, index: ast.expr, value: Value, node: ast.stmt) -> None:
        """`messages[i] = value`."""
        if isinstance(index, ast.Slice):
            if self._is_messages(inner) and index.lower is not None:
                self._mark(inner, "edited_in_place", node)
            return
        key = self.key_of(inner)
        old = self.env.get(key) if key else None
        at = self.value(index)
        number = at.number if isinstance(at, Thing) else None
        if (
            key
            and isinstance(old, Many)
            and isinstance(number, int)
            and -len(old.items) <= number < len(old.items)
        ):
            items = list(old.items)
            items[number] = Item(value, self.module.where(node))
            self.env[key] = replace(old, items=tuple(items))
        if self._is_messages(inner):
            if number == 0:
                if self.loops or not isinstance(old, Many) or self._later(inner):
                    self._mark(inner, "system_mutated", node)
            elif not (isinstance(number, int) and number < 0) and (
                self.loops or number is not None
            ):
                self._mark(inner, "edited_in_place", node)
        elif isinstance(old, Dict) and key:
            self.env[key] = Dict((*old.entries, Entry(None, value)), old.where)


def _against_much(test: ast.expr) -> bool:
    """`size(messages) > 100_000`: a size that is reached once in a while."""
    return any(
        isinstance(c, ast.Compare)
        and any(
            isinstance(n, ast.Constant) and isinstance(n.value, int | float) and n.value >= 1000
            for n in c.comparators
        )
        for c in ast.walk(test)
    )


def _blocks(node: ast.expr) -> bool:
    """`message["content"]`: the blocks of one message."""
    match node:
        case ast.Subscript(slice=ast.Constant(value="content" | "parts")):
            return True
    return False


def _is_copy(node: ast.expr) -> bool:
    """`list(x)`, `copy.deepcopy(x)`, `copy_messages(x)`, `[*x]`, `[m for m in x]`."""
    match node:
        case ast.Call(func=func):
            name = name_of(func).rpartition(".")[2]
            return name == "list" or "copy" in name.lower()
        case ast.List(elts=elts):
            return any(isinstance(e, ast.Starred) for e in elts)
    return isinstance(node, ast.ListComp)


def _iterated(node: ast.expr) -> ast.expr:
    """`messages` of `enumerate(messages[:-3])`."""
    while True:
        match node:
            case ast.Call(args=[first, *_]):
                node = first
            case ast.Subscript(value=inner):
                node = inner
            case _:
                return node


def _text(value: Value) -> Bits:
    if isinstance(value, Str):
        return value.bits
    return as_bits(value, Slot("", getattr(value, "name", ""), value.facts or FIXED, None))
