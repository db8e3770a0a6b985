"""Whether two schemas have no value in common, as far as that is plain to see."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

_DEPTH = 8


def disjoint(a: Any, b: Any, resolve: Callable[[str], Any], depth: int = 0) -> bool:
    """True only when it is certain that no value fits both. `resolve`: a `$ref` to its schema."""
    if a is False or b is False:
        return True
    if not isinstance(a, Mapping) or not isinstance(b, Mapping) or depth > _DEPTH:
        return False

    def deeper(x: Any, y: Any) -> bool:
        return disjoint(x, y, resolve, depth + 1)

    for x, y in ((a, b), (b, a)):
        if "$ref" in x and deeper(resolve(x["$ref"]), y):
            return True
        for key in ("anyOf", "oneOf"):
            if x.get(key) and all(deeper(part, y) for part in x[key]):
                return True
        if any(deeper(part, y) for part in x.get("allOf", ())):
            return True
    if not (_types(a) & _types(b)):
        return True
    mine, yours = _values(a), _values(b)
    if mine is not None and yours is not None:
        return not (mine & yours)
    if _types(a) & _types(b) == {"object"}:
        return any(
            deeper(part, b.get("properties", {}).get(name, True))
            for name, part in a.get("properties", {}).items()
            if name in a.get("required", ()) and name in b.get("required", ())
        )
    return False


def _types(node: Mapping[str, Any]) -> set[str]:
    """JSON types of a node's values; a whole number counts as `number` only."""
    if "type" in node:
        kinds = node["type"]
        found = {kinds} if isinstance(kinds, str) else set(kinds)
        found |= {"null"} if node.get("nullable") is True else set()
        return {"number" if kind == "integer" else kind for kind in found}
    values = [node["const"]] if "const" in node else node.get("enum")
    if values is not None:
        return {_type(value) for value in values}
    return {"null", "boolean", "number", "string", "array", "object"}


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _values(node: Mapping[str, Any]) -> set[str] | None:
    values = [node["const"]] if "const" in node else node.get("enum")
    if values is None:
        return None
    return {
        json.dumps(float(v) if _type(v) == "number" else v, sort_keys=True, ensure_ascii=False)
        for v in (*values, *([None] if node.get("nullable") is True else ()))
    }
