"""How long the shortest document of a schema is, and whether there is one at all.

Sizes are bytes of JSON with `", "` and `": "` between items: no document takes more tokens than it
has bytes. They are estimates from above for `pattern` and `format`, and sums where several keywords bear on one value, which is what their users
need: a bound on how much output may still be missing at any time.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

_PATTERN = 48
"""Bytes that a string with a format is taken to need, and one with a pattern at least."""
_LARGEST = 1e9
_COUNT = re.compile(r"(?<!\\)(.)\{(\d+)(?:,\d*)?\}", re.DOTALL)
_BEYOND = re.compile(r"\\[upx]")
_BY_TYPE = {"null": 4.0, "boolean": 4.0, "number": 1.0, "integer": 1.0}


class Least:
    """Sizes of the shortest documents of every node of a vetted schema (`vet_schema`'s output)."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = {k: v for k, v in root.items() if k not in ("$defs", "x-guidance")}
        self._defs: dict[str, Any] = {f"#/$defs/{k}": v for k, v in root.get("$defs", {}).items()}
        self._defs["#"] = self._root
        self._refs: dict[str, float] = dict.fromkeys(self._defs, math.inf)
        self._memo: dict[int, float] = {}
        self._settle()

    def _settle(self) -> None:
        """Find the sizes of the definitions, which may refer to each other and to themselves.

        All start without a finite document; one that is found makes those that use it shorter,
        until nothing changes.
        """
        users: dict[str, set[str]] = {name: set() for name in self._defs}
        for name, node in self._defs.items():
            for _, part in _nodes(node, ""):
                if part is not True and "$ref" in part:
                    users[part["$ref"]].add(name)
        todo = deque(self._defs)
        queued = set(todo)
        while todo:
            name = todo.popleft()
            queued.discard(name)
            size = self.of(self._defs[name])
            if size < self._refs[name]:
                self._refs[name] = size
                for user in users[name] - queued:
                    todo.append(user)
                    queued.add(user)
            self._memo.clear()

    def largest(self) -> float:
        """The longest of the shortest documents of all nodes, with its name where it is a member:
        how much one choice may add."""
        longest = 1.0
        for _, node in self.nodes():
            longest = max(longest, self.of(node))
            if node is True:
                continue
            for key, size in (("properties", _written), ("patternProperties", match_size)):
                for name, part in node.get(key, {}).items():
                    longest = max(longest, size(name) + 6 + self.of(part))
        return longest

    def endless(self) -> str | None:
        """The path of a node without any finite document, if there is one."""
        for path, node in self.nodes():
            if math.isinf(self.of(node)):
                return path
        return None

    def nodes(self) -> Iterator[tuple[str, Any]]:
        """Every schema inside, definitions first, inner ones before outer ones, with its path."""
        for pointer, node in self._defs.items():
            yield from _nodes(node, pointer[1:].replace("/", "."))

    def of(self, node: Any) -> float:
        """Bytes of the shortest document of `node`; infinite when there is none."""
        known = self._memo.get(id(node))
        if known is None:
            known = self._memo[id(node)] = self._size(node)
        return known

    def _size(self, node: Any) -> float:
        if node is True:
            return 1.0
        if node is False:
            return math.inf
        if "const" in node:
            return _written(node["const"])
        if "enum" in node:
            return min(_written(v) for v in node["enum"])
        total = 0.0
        if "$ref" in node:
            total += self._refs[node["$ref"]]
        for part in node.get("allOf", ()):
            total += self.of(part)
        if "anyOf" in node:
            total += min(self.of(part) for part in node["anyOf"])
        kinds = node.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds is not None:
            total += min(self._of_type(kind, node) for kind in kinds)
        elif not total:
            # Any type: something short is always allowed.
            total = 1.0
        return total

    def _of_type(self, kind: str, node: Mapping[str, Any]) -> float:
        if kind == "string":
            size = float(node.get("minLength", 0))
            if "pattern" in node or "format" in node:
                size = max(size, _PATTERN, match_size(node.get("pattern", "")))
            return size + 2
        if kind == "array":
            first = node.get("prefixItems", [])
            size = 2.0
            for index in range(min(node.get("minItems", 0), len(first))):
                size += self.of(first[index]) + 2
            rest = node.get("minItems", 0) - len(first)
            if rest > 0:
                size += rest * (self.of(node.get("items", True)) + 2)
            return size
        if kind == "object":
            size, known = 2.0, node.get("properties", {})
            extra = node.get("additionalProperties", True)
            for name in node.get("required", ()):
                size += _written(name) + 4
                size += self.of(known.get(name, extra))
            missing = node.get("minProperties", 0) - len(node.get("required", ()))
            if missing > 0:
                names = node.get("patternProperties", {})
                kinds = [*names.values(), extra]
                name = max((match_size(n) for n in names), default=0.0)
                size += missing * (max(_PATTERN, name) + min(self.of(k) for k in kinds))
            return size
        if kind in ("number", "integer"):
            bounds = [
                len(format(Decimal(repr(v)), "f"))
                for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
                if (v := node.get(k)) is not None
            ]
            return float(max(bounds, default=1)) + ("multipleOf" in node) * 8
        return _BY_TYPE[kind]


def match_size(pattern: str) -> float:
    """Bytes of a short match of a regular expression, estimated from above.

    Each part of it is written once, and as often as a count of it says at least; counts of groups
    may lie inside each other, so that they are multiplied.
    """
    size, times = float(len(pattern.encode("utf-8", "replace"))), 1.0
    for before, count in _COUNT.findall(pattern):
        if before == ")":
            times *= max(1, int(count))
        else:
            size += int(count)
    if not pattern.isascii() or _BEYOND.search(pattern):
        size *= 4
    return min(size * times, _LARGEST)


def _written(value: Any) -> float:
    return float(len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")))


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, Mapping):
        if node is True:
            yield path, node
        return
    for key in ("anyOf", "allOf", "prefixItems"):
        for index, part in enumerate(node.get(key, ())):
            yield from _nodes(part, f"{path}.{key}[{index}]")
    for key in ("properties", "patternProperties"):
        for name, part in node.get(key, {}).items():
            yield from _nodes(part, f"{path}.{key}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from _nodes(node[key], f"{path}.{key}")
    yield path, node
