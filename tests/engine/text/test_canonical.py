from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text.canonical import (
    canonical_json,
    canonical_tool,
    canonical_tools,
    digest,
    first_difference,
    plain,
    tool_digest,
    tool_name,
    tools_digest,
)

SCHEMA = {
    "type": "object",
    "properties": {"zeta": {"type": "string"}, "alpha": {"enum": ["b", "a"]}},
    "required": ["zeta"],
}
OPENAI = {
    "type": "function",
    "function": {"name": "look", "description": "Look it up.", "parameters": SCHEMA},
}


@pytest.mark.parametrize(
    "tool",
    [
        OPENAI,
        {"function": {"parameters": SCHEMA, "description": "Look it up.", "name": "look"}},
        {"name": "look", "input_schema": SCHEMA, "description": "Look it up."},
        {"description": "Look it up.", "inputSchema": SCHEMA, "name": "look", "title": "T"},
        {**OPENAI, "agentkv": {"stability": "deploy"}, "cache_control": {"type": "ephemeral"}},
        {"type": "function", "function": {**OPENAI["function"], "strict": True}},  # type: ignore[dict-item]
    ],
)
def test_one_definition_has_one_form(tool: dict[str, object]) -> None:
    made = canonical_tool(tool)
    assert canonical_json(made) == json.dumps(OPENAI, ensure_ascii=False)
    assert tool_digest(tool) == tool_digest(OPENAI)
    assert tool_name(tool) == "look"


def test_the_author_s_order_is_kept() -> None:
    text = canonical_json(canonical_tool(OPENAI))
    assert text.index("zeta") < text.index("alpha")
    assert text.index('"b"') < text.index('"a"')


def test_digests_tell_change_from_order() -> None:
    other = canonical_tool({"name": "find", "parameters": SCHEMA})
    assert tools_digest([OPENAI, other]) != tools_digest([other, OPENAI])
    changed = json.loads(json.dumps(OPENAI))
    changed["function"]["parameters"]["properties"]["alpha"]["enum"] = ["a", "b"]
    assert tool_digest(changed) != tool_digest(OPENAI)
    assert first_difference(OPENAI, changed) == "$.function.parameters.properties.alpha.enum[0]"
    assert first_difference(OPENAI, json.loads(json.dumps(OPENAI))) is None
    assert digest("ab", "c") != digest("a", "bc")


def test_first_difference_sees_key_order_and_length() -> None:
    assert first_difference({"a": 1, "b": 2}, {"b": 2, "a": 1}) == "$.b"
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == "$.b"
    assert first_difference([1, 2], [1]) == "$[1]"
    assert first_difference({"a": 1}, {"a": True}) == "$.a"


@pytest.mark.parametrize(
    "tool",
    [
        "look",
        {"type": "web_search"},
        {"type": "function", "function": {"description": "no name"}},
        {"name": ""},
        {"name": "x" * 300},
        {"name": "a", "description": 3},
        {"name": "a", "parameters": [1]},
        {"name": "a", "parameters": {"default": object()}},
    ],
)
def test_what_is_no_tool_is_refused(tool: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        canonical_tools([tool])  # type: ignore[list-item]
    assert caught.value.param == "tools"


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"items": deep}
    with pytest.raises(InvalidRequest, match="deeper"):
        plain(deep, param="tools")


def test_real_tool_lists_pass_unchanged_in_meaning(traces: Path) -> None:
    tools = json.loads((traces / "tools" / "github_mcp_tools.json").read_text("utf-8"))
    made = canonical_tools(tools)
    assert len(made) == len(tools) > 100
    for tool, form in zip(tools, made, strict=True):
        source = tool.get("function", tool)
        assert form["function"]["name"] == source["name"]
        schema = source.get("parameters") or source.get("inputSchema") or source.get("input_schema")
        assert json.dumps(form["function"]["parameters"]) == json.dumps(schema)
