"""Objects and lists that are written out in a file, JSON or Python, with the place of each member."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentkv.lint.fixes.strings import places_of, tree_of
from agentkv.lint.source import Slice, Source


@dataclass(slots=True)
class Node:
    """A value at `[start, end)`. `kind`: object, list, string, other. `key` is its name in the
    object around it, `name` where that name begins."""

    kind: str
    start: int
    end: int
    key: str | None = None
    name: int = -1
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None

    def get(self, key: str) -> Node | None:
        return next((c for c in self.children if c.key == key), None)

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def whole(source: Source, python: bool) -> list[Node]:
    """Every outermost value of a file. An unreadable file has none."""
    try:
        return list(_python(source)) if python else list(_json(source.text))
    except (SyntaxError, ValueError, RecursionError):
        return []


def at(nodes: list[Node], where: Slice) -> Node | None:
    """The smallest value that covers a slice."""
    best: Node | None = None
    for root in nodes:
        for node in root.walk():
            start = node.name if node.name >= 0 else node.start
            if (
                start <= where.start
                and where.end <= node.end
                and (
                    best is None
                    or node.end - start <= best.end - (best.name if best.name >= 0 else best.start)
                )
            ):
                best = node
    return best


def add(source: Source, node: Node, written: str) -> tuple[int, str]:
    """Where and what to insert so that an object has one member more, in the style of the last one."""
    if not node.children:
        return node.start + 1, written
    last = node.children[-1]
    begin = last.name if last.name >= 0 else last.start
    line = source.text.rfind("\n", 0, begin) + 1
    indent = source.text[line:begin]
    own_line = not indent.strip() and line > node.start
    return last.end, (f",\n{indent}{written}" if own_line else f", {written}")


def drop(source: Source, node: Node) -> Slice:
    """What to take out so that an object or a call has one member less."""
    assert node.parent is not None
    siblings = node.parent.children
    n = siblings.index(node)
    start = node.name if node.name >= 0 else node.start
    if n + 1 < len(siblings):
        following = siblings[n + 1]
        return Slice(start, following.name if following.name >= 0 else following.start)
    if n:
        return Slice(siblings[n - 1].end, node.end)
    return Slice(start, node.end)


# -- JSON -----------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_ATOM = re.compile(r"[-+.\w]+")


def _json(text: str) -> Iterator[Node]:
    at = _skip(text, 0)
    while at < len(text):
        node = _value(text, at)
        yield node
        at = _skip(text, node.end)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> Node:
    mark = text[at : at + 1]
    if mark in ("{", "["):
        node = Node("object" if mark == "{" else "list", at, at)
        at = _skip(text, at + 1)
        while text[at : at + 1] not in ("}", "]"):
            name, key = -1, None
            if mark == "{":
                found = _STRING.match(text, at)
                if found is None:
                    raise ValueError(f"no name at {at}")
                name, key = at, found[0][1:-1]
                at = _skip(text, found.end())
                if text[at : at + 1] != ":":
                    raise ValueError(f"no colon at {at}")
                at = _skip(text, at + 1)
            child = _value(text, at)
            child.key, child.name, child.parent = key, name, node
            node.children.append(child)
            at = _skip(text, child.end)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
            elif text[at : at + 1] not in ("}", "]"):
                raise ValueError(f"no end at {at}")
        node.end = at + 1
        return node
    found = _STRING.match(text, at) or _ATOM.match(text, at)
    if found is None:
        raise ValueError(f"no value at {at}")
    return Node("string" if mark == '"' else "other", at, found.end())


# -- Python ---------------------------------------------------------------------------------------


def _python(source: Source) -> Iterator[Node]:
    """Calls, dict displays and list displays. A call is an object whose members are its keywords."""
    places = places_of(source.text)

    def of(node: ast.expr) -> Node:
        start, end = places.of(node)
        if isinstance(node, ast.Dict):
            made = Node("object", start, end)
            for key, value in zip(node.keys, node.values, strict=True):
                child = of(value)
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    child.key = key.value
                child.name = places.of(key)[0] if key is not None else -1
                child.parent = made
                made.children.append(child)
            return made
        if isinstance(node, (ast.List, ast.Tuple)):
            made = Node("list", start, end)
            for item in node.elts:
                child = of(item)
                child.parent = made
                made.children.append(child)
            return made
        if isinstance(node, ast.Call):
            made = Node("call", start, end)
            for argument in node.args:
                child = of(argument)
                child.parent = made
                made.children.append(child)
            for keyword in node.keywords:
                child = of(keyword.value)
                child.key, child.parent = keyword.arg, made
                child.name = places.offset(keyword.lineno, keyword.col_offset)
                made.children.append(child)
            made.children.sort(key=lambda c: c.start)
            return made
        text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        made = Node("string" if text else "other", start, end)
        if not isinstance(node, ast.JoinedStr):
            for inner in _below(node):
                child = of(inner)
                child.parent = made
                made.children.append(child)
        return made

    for node in _below(tree_of(source.text)):
        yield of(node)


def _below(node: ast.AST) -> list[ast.expr]:
    """The outermost expressions below a node."""
    out: list[ast.expr] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            out.append(child)
        else:
            out += _below(child)
    return out
