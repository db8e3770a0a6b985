"""Vetting of JSON schemas: what is refused, with which words, and what is bounded."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run.schema import MAX_ITEMS, MAX_STRING, vet_schema

OPEN = {"type": "object"}


def refused(schema: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        vet_schema(schema, param="response_format")
    assert caught.value.param == "response_format"
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ({"not": {}}, "$.not", "anyOf"),
        ({"properties": {"x": {"contains": {}}}}, "$.properties.x.contains", "prefixItems"),
        ({"items": {"uniqueItems": True}}, "$.items.uniqueItems", "not supported"),
        ({"anyOf": [OPEN, {"if": {}}]}, "$.anyOf[1].if", "anyOf"),
        ({**OPEN, "dependentRequired": {"a": ["b"]}}, "$.dependentRequired", "anyOf"),
        ({**OPEN, "unevaluatedProperties": False}, "$.unevaluatedProperties", "additional"),
        ({"$defs": {"a": {"not": {}}}, "$ref": "#/$defs/a"}, "$.$defs.a.not", "not supported"),
        ({"properties": {"a b": {"pattern": "("}}}, '$.properties["a b"].pattern', "unclosed"),
        ({"type": "string", "pattern": "(?=a)b"}, "$.pattern", "look-around"),
        ({"type": "string", "pattern": r"(a)\1"}, "$.pattern", "backreferences"),
        ({"patternProperties": {"[": {}}}, '$.patternProperties["["]', "unclosed"),
        ({"type": "string", "format": "iban"}, "$.format", "pattern"),
        ({"type": "strin"}, "$.type", "one of null"),
        ({"type": []}, "$.type", "one of null"),
        ({"type": 3}, "$.type", "string"),
        ({"enum": []}, "$.enum", "at least one"),
        ({"enum": "ab"}, "$.enum", "list"),
        ({"anyOf": []}, "$.anyOf", "list of schemas"),
        ({"properties": []}, "$.properties", "object"),
        ({"properties": {"a": 3}}, "$.properties.a", "schema"),
        ({**OPEN, "required": "a"}, "$.required", "list"),
        ({**OPEN, "properties": {"a": False}, "required": ["a"]}, "$.required", "'a'"),
        ({"$ref": "#/$defs/none"}, "$.$ref", "not there"),
        ({"$ref": "https://example.com/schema.json"}, "$.$ref", "pointer"),
        ({"items": {"$ref": 3}}, "$.items.$ref", "pointer"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "$.minimum", "nothing fits"),
        ({"type": "string", "minLength": 5, "maxLength": 3}, "$.minLength", "nothing fits"),
        ({"type": "string", "maxLength": -1}, "$.maxLength", "at least 0"),
        ({"type": "number", "minimum": True}, "$.minimum", "number"),
        ({"type": "number", "multipleOf": 0}, "$.multipleOf", "number"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "$", "incompatible types"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "$.oneOf", "anyOf"),
        ({"properties": {"a": {}}, "minProperties": 1}, "$.minProperties", "required"),
        ({"$ref": "#"}, "$", "no finite document"),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}},
             "type": "object", "required": ["n"]}}},
            "$.$defs.n.properties.n",
            "no finite document",
        ),
        ({"definitions": {"A": {"type": "integer", "minimum": 10**30}},
          "items": {"$ref": "#/definitions/A"}, "type": "array"}, "$.definitions.A", "integer"),
        (False, "$", "object"),
        (None, "$", "object"),
        ("{}", "$", "object"),
        ([], "$", "object"),
        ({"const": float("nan")}, "$", "JSON"),
        ({"const": object()}, "$", "JSON"),
    ],
)  # fmt: skip
def test_refusals_name_the_path_and_what_to_do(schema: Any, path: str, words: str) -> None:
    message = refused(schema)
    assert message.startswith(f"{path} "), message
    assert words in message


def test_the_path_starts_where_the_caller_says() -> None:
    with pytest.raises(InvalidRequest) as caught:
        vet_schema({"items": {"not": {}}}, param="tools", path="tools[2].function.parameters")
    assert str(caught.value).startswith("tools[2].function.parameters.items.not ")
    assert caught.value.param == "tools"


def test_huge_schemas_are_refused_at_once() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    cases = [
        (deep, "nested deeper than 64"),
        ({"enum": [f"value {i}" for i in range(50_000)]}, "bytes"),
        ({"enum": list(range(20_000))}, "20000 values"),
    ]
    for schema, words in cases:
        began = time.perf_counter()
        assert words in refused(schema)
        assert time.perf_counter() - began < 1.0
    assert vet_schema({"enum": list(range(10_000))}, param="p")["enum"] == list(range(10_000))


def test_long_chains_of_definitions_do_not_overflow_any_stack() -> None:
    chain = {
        f"d{i}": {"type": "object", "properties": {"n": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}]}}}
        for i in range(999)
    }
    schema: dict[str, Any] = {"$ref": "#/$defs/d0", "$defs": {**chain, "d999": {"type": "integer"}}}
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(vet_schema(schema, param="p")))
    thread.start()
    thread.join(20)
    assert found and len(found[0]["$defs"]) == 1000
    more = {**schema, "$defs": {**schema["$defs"], "d999": {"$ref": "#/$defs/e"}, "e": {}}}
    assert "1000" in refused(more)


def test_what_is_unbounded_gets_a_bound_and_annotations_go() -> None:
    schema = {
        "title": "T",
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "kept as a property"},
            "list": {"type": "array", "items": {"type": ["string", "null"], "minLength": 70_000}},
            "short": {"type": "string", "maxLength": 3},
            "kind": {"type": "string", "enum": ["a"]},
        },
        "required": ["title"],
    }
    found = vet_schema(schema, param="p")
    assert list(found["properties"]) == ["title", "list", "short", "kind"]
    assert found["properties"]["title"] == {"type": "string", "maxLength": MAX_STRING}
    assert found["properties"]["list"]["maxItems"] == MAX_ITEMS
    assert found["properties"]["list"]["items"]["maxLength"] == 70_000
    assert found["properties"]["short"]["maxLength"] == 3
    assert "maxLength" not in found["properties"]["kind"]
    assert found["x-guidance"]["whitespace_flexible"] is False
    assert vet_schema(found, param="p") == found


def test_other_ways_to_say_the_same_are_understood() -> None:
    assert vet_schema({"type": "integer", "nullable": True}, param="p")["anyOf"] == [
        {"type": "integer"},
        {"type": "null"},
    ]
    union = {
        "oneOf": [{"$ref": "#/definitions/C"}, {"$ref": "#/definitions/D"}, {"type": "null"}],
        "discriminator": {"propertyName": "k"},
        "definitions": {
            name: {"type": "object", "properties": {"k": {"const": name}}, "required": ["k"]}
            for name in "CD"
        },
    }
    assert len(vet_schema(union, param="p")["anyOf"]) == 3
    names = {
        "type": "object",
        "propertyNames": {"$ref": "#/$defs/E"},
        "additionalProperties": {"type": "integer"},
        "$defs": {"E": {"enum": ["a.b", "c"]}},
    }
    found = vet_schema(names, param="p")
    assert list(found["patternProperties"]) == [r"^(a\.b|c)$"]
    assert found["additionalProperties"] is False
    old = {"type": "array", "items": [{"type": "null"}], "additionalItems": False, "minItems": 1}
    found = vet_schema(old, param="p")
    assert found["prefixItems"] == [{"type": "null"}]
    assert found["items"] is False


KEYWORDS = [
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "exclusiveMaximum",
    "multipleOf",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "$defs",
    "nullable",
    "uniqueItems",
    "minProperties",
    "x-guidance",
    "title",
]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(allow_nan=False), st.text(max_size=4),
    st.sampled_from(["object", "string", "array", "integer", "#", "#/$defs/a", "^a+$", "date", "a"]),
)  # fmt: skip
JUNK = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*KEYWORDS, "a", "b"]), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(junk=st.dictionaries(st.sampled_from(KEYWORDS), JUNK, max_size=5))
def test_anything_is_vetted_or_refused_and_nothing_else_happens(junk: dict[str, Any]) -> None:
    try:
        found = vet_schema(junk, param="p")
    except InvalidRequest as error:
        assert error.param == "p" and str(error).startswith("$")
    else:
        assert vet_schema(found, param="p") == found


def test_vetting_needs_no_torch() -> None:
    code = (
        "import sys; from agentkv.engine.run.schema import vet_schema; "
        "vet_schema({'type': 'string', 'pattern': '^a$'}, param='p'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
