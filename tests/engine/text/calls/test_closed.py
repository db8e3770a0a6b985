"""Objects without undeclared members, wherever that cannot make a document invalid."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from agentkv.engine.text.calls.closed import close_objects

A: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CLOSED = {**A, "additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (A, CLOSED),
        ({"type": "object"}, {"type": "object"}),
        ({"type": "array", "items": A}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        (
            {"properties": {"x": A, "y": {"$ref": "#/$defs/A"}}, "$defs": {"A": A}},
            {
                "properties": {"x": CLOSED, "y": {"$ref": "#/$defs/A"}},
                "$defs": {"A": CLOSED},
                "additionalProperties": False,
            },
        ),
        (
            {"properties": {"properties": A}},
            {"properties": {"properties": CLOSED}, "additionalProperties": False},
        ),
        (
            {"additionalProperties": A, "type": "object"},
            {"additionalProperties": CLOSED, "type": "object"},
        ),
    ],
)
def test_declared_members_only(given: dict[str, Any], want: dict[str, Any]) -> None:
    before = copy.deepcopy(given)
    assert close_objects(given) == want
    assert given == before


@pytest.mark.parametrize(
    "given",
    [
        {**A, "additionalProperties": True},
        {**A, "additionalProperties": {"type": "string"}},
        {**A, "patternProperties": {"^x": {}}},
        {**A, "required": ["a", "b"]},
        {**A, "minProperties": 2},
        {**A, "anyOf": [{"properties": {"b": {}}}, A]},
        {"allOf": [A, {"properties": {"b": {"type": "integer"}}}]},
        {"oneOf": [A, {"properties": {"b": {}}}]},
        {"oneOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": A}},
        {"not": A},
    ],
)
def test_what_other_keywords_decide_stays(given: dict[str, Any]) -> None:
    assert close_objects(given) == given
