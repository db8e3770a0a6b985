"""A JSON schema that means what its author listed: objects have the listed properties and no others.

JSON Schema lets an object have any further property unless it says otherwise, and hardly an author
says so; a weak model uses that freedom (`{"input": 3, "type": "integer"}`). Every object of the
closed schema fits the open one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MIXED = ("allOf", "anyOf", "oneOf", "$ref", "if", "not", "patternProperties", "dependentSchemas")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_NODES = ("items", "additionalProperties")
_DEEPEST = 100
"""Nesting beyond this is left as it is: vetting refuses it."""


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `schema` whose plain objects are closed. It need not have been vetted.

    An object that says itself whether it is open stays as it is, and so do objects that are one
    part of a combination, where a property may be listed by another part.
    """
    out: dict[str, Any] = _closed(schema, frozenset(_combined(schema, 0)), False, 0)
    return out


def _closed(schema: Any, shared: frozenset[str], part: bool, depth: int) -> Any:
    """`part`: whether this node is a part of a combination. `shared`: references to such nodes."""
    if depth > _DEEPEST:
        return schema
    if isinstance(schema, list):
        return [_closed(item, shared, part, depth + 1) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    out = dict(schema)
    listed = schema.get("properties")
    for key in _MAPS:
        nodes = schema.get(key)
        if isinstance(nodes, Mapping):
            out[key] = {
                name: _closed(node, shared, f"#/{key}/{name}" in shared, depth + 1)
                for name, node in nodes.items()
            }
    for key in _LISTS:
        if key in schema:
            out[key] = _closed(schema[key], shared, part or bool(listed), depth + 1)
    for key in _NODES:
        if key in schema:
            out[key] = _closed(schema[key], shared, False, depth + 1)
    if "allOf" in schema:
        out["allOf"] = _closed(schema["allOf"], shared, True, depth + 1)
    alone = not part and not any(key in schema for key in _MIXED)
    if isinstance(listed, Mapping) and alone and "additionalProperties" not in schema:
        required = schema.get("required") or ()
        if isinstance(required, (list, tuple)) and all(name in listed for name in required):
            out["additionalProperties"] = False
    return out


def _combined(schema: Any, depth: int) -> Iterator[str]:
    """References to definitions that are parts of a combination somewhere."""
    if depth > _DEEPEST:
        return
    if isinstance(schema, list):
        for item in schema:
            yield from _combined(item, depth + 1)
    if not isinstance(schema, Mapping):
        return
    parts = _list(schema.get("allOf"))
    if schema.get("properties"):
        parts += [schema, *_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
    for part in parts:
        if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
            yield part["$ref"]
    for value in schema.values():
        yield from _combined(value, depth + 1)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []
