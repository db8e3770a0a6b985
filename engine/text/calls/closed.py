"""Schemas without the members that nobody asked for.

JSON Schema lets an object have any further members unless it says otherwise, and authors of tools
seldom do. A model that is held to the schema alone may then go on inventing members, and weak ones
do. What is left out here is always valid for the schema as it was given: documents lose members
that are optional by definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OTHERS = frozenset(
    [
        "$ref",
        "$dynamicRef",
        "additionalProperties",
        "allOf",
        "anyOf",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "minProperties",
        "not",
        "oneOf",
        "patternProperties",
        "propertyNames",
        "then",
        "unevaluatedProperties",
    ]
)
"""Keywords that have a say in which members an object may have."""
_MISMATCH = frozenset(["oneOf", "not", "if"])
_MAPS = ("properties", "$defs", "definitions")


def close_objects(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `schema` in which objects have the members that they declare and no others.

    Only where that is all that the schema says of them: an object whose members are also a matter
    of other keywords stays as it is, and so does all of a schema that has an `allOf` in it.
    Definitions stay as they are too where one could be used by a keyword that asks for a mismatch.
    """
    if _has(schema, frozenset(["allOf"])):
        return dict(schema)
    closed: dict[str, Any] = _closed(schema, _MAPS[:1] if _has(schema, _MISMATCH) else _MAPS)
    return closed


def _closed(node: Any, maps: tuple[str, ...]) -> Any:
    if not isinstance(node, Mapping):
        return node
    out = dict(node)
    for key in maps:
        if isinstance(out.get(key), Mapping):
            out[key] = {name: _closed(part, maps) for name, part in out[key].items()}
    for key in ("items", "additionalProperties"):
        if key in out:
            out[key] = _closed(out[key], maps)
    # Beside declared members an alternative says only a part of what holds.
    for key in ("prefixItems",) if "properties" in out else ("anyOf", "prefixItems"):
        if isinstance(out.get(key), list):
            out[key] = [_closed(part, maps) for part in out[key]]
    declared = out.get("properties")
    if isinstance(declared, Mapping) and _OTHERS.isdisjoint(out):
        required = out.get("required", [])
        if isinstance(required, list) and all(name in declared for name in required):
            out["additionalProperties"] = False
    return out


def _has(node: Any, keywords: frozenset[str]) -> bool:
    if isinstance(node, Mapping):
        return not keywords.isdisjoint(node) or any(_has(part, keywords) for part in node.values())
    return isinstance(node, list) and any(_has(part, keywords) for part in node)
