"""Schemas whose objects have what is listed and no more."""

from __future__ import annotations

from typing import Any

from agentkv.engine.run.schema_closed import closed


def test_objects_have_what_is_listed_and_no_more() -> None:
    """A weak model would use the freedom that an author did not think of."""
    number = {"type": "integer"}
    plain = {"type": "object", "properties": {"a": number}, "required": ["a"]}
    shut = {**plain, "additionalProperties": False}
    free = {**plain, "additionalProperties": True}
    assert closed(plain) == shut
    assert closed(free) == free
    assert closed({"type": "object"}) == {"type": "object"}
    nested = {"type": "object", "properties": {"x": {"type": "array", "items": plain}, "y": free}}
    want = {"type": "array", "items": shut}
    assert closed(nested)["properties"] == {"x": want, "y": free}
    union = {"anyOf": [plain, {"type": "null"}]}
    assert closed(union) == {"anyOf": [shut, {"type": "null"}]}
    # One part may list what another requires.
    parts = {"allOf": [plain, {"type": "object", "properties": {"b": number}}]}
    assert closed(parts) == parts
    mixed = {**plain, "anyOf": [{"properties": {"b": number}}, {"properties": {"c": number}}]}
    assert closed(mixed) == mixed
    unlisted = {"type": "object", "properties": {"a": number}, "required": ["b"]}
    assert closed(unlisted) == unlisted
    defined = {"$defs": {"P": plain}, "$ref": "#/$defs/P"}
    assert closed(defined) == {"$defs": {"P": shut}, "$ref": "#/$defs/P"}
    shared = {
        "$defs": {"P": plain},
        "allOf": [{"$ref": "#/$defs/P"}, {"properties": {"b": number}}],
    }
    assert closed(shared) == shared
    assert closed(closed(nested)) == closed(nested)
    assert "additionalProperties" not in plain
    nothing = {"type": "object", "properties": {}}
    assert closed(nothing) == {**nothing, "additionalProperties": False}


def test_what_is_no_schema_is_left_to_the_vetting() -> None:
    odd: dict[str, Any] = {"allOf": 3, "anyOf": "x", "required": 3, "properties": {"a": 4}}
    assert closed(odd) == odd
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"items": deep}
    closed(deep)
