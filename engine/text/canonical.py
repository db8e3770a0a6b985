"""One byte form for tool definitions, and digests that tell content apart.

A tool that is written with other outer keys, or with its keys in another order, is still the same
tool; if it renders to other bytes, everything behind it in the prompt is computed again. Here every
definition gets fixed outer keys, `type, function {name, description, parameters}`. Inside
`parameters` nothing is sorted: the order of `properties` and of `enum` is the author's.

Pure Python: neither torch nor a tokenizer is needed, so the layout and the linter can use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentkv.engine.errors import InvalidRequest

MAX_DEPTH = 64
MAX_TOOLS = 1024
MAX_TOOL_NAME = 256


def digest(*parts: str) -> str:
    """A 24-digit hex BLAKE2 digest of `parts`; `("ab", "c")` and `("a", "bc")` differ."""
    h = hashlib.blake2b(digest_size=12)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()


def canonical_json(value: Any) -> str:
    """`value` as JSON text: insertion order, `", "` and `": "` separators, no ASCII escapes.

    The same form that chat templates give with `tojson`.
    """
    return json.dumps(value, ensure_ascii=False)


def plain(value: Any, *, param: str, depth: int = 0) -> Any:
    """A copy of `value` that is made of exact JSON types only.

    Raises `InvalidRequest(param)` for anything else, and for nesting deeper than `MAX_DEPTH`.
    Templates see nothing but this, so no object with methods ever reaches the sandbox.
    """
    if depth > MAX_DEPTH:
        raise InvalidRequest(f"{param} is nested deeper than {MAX_DEPTH} levels.", param=param)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        out: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidRequest(
                    f"{param} has a key that is not a string: {key!r}.", param=param
                )
            out[str.__str__(key)] = plain(item, param=param, depth=depth + 1)
        return out
    if isinstance(value, (list, tuple)):
        return [plain(item, param=param, depth=depth + 1) for item in value]
    raise InvalidRequest(
        f"{param} holds a {type(value).__name__}, which JSON cannot express.", param=param
    )


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name in a tool definition of any accepted shape ("" when there is none)."""
    function = tool.get("function")
    source = function if isinstance(function, Mapping) else tool
    name = source.get("name")
    return name if isinstance(name, str) else ""


def canonical_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """`tool` as `{"type", "function": {"name", "description", "parameters"}}`.

    Accepts OpenAI's shape, a bare function, Anthropic's `input_schema` and MCP's `inputSchema`.
    Other outer keys (`strict`, `cache_control`, annotations) say nothing to the model and are
    dropped. A missing or empty description is left out; missing parameters become an object
    schema without properties.

    Raises `InvalidRequest(param="tools")` when the definition cannot be read.
    """
    if not isinstance(tool, Mapping):
        raise InvalidRequest(
            f"Each tool must be an object, got {type(tool).__name__}.", param="tools"
        )
    kind = tool.get("type", "function")
    function = tool.get("function")
    if function is None and kind in ("function", "custom", None):
        function = tool
    if not isinstance(function, Mapping) or kind not in ("function", "custom", None):
        raise InvalidRequest(
            f"Only function tools are supported, got a tool of type {kind!r}.", param="tools"
        )
    name = function.get("name")
    if not isinstance(name, str) or not name or len(name) > MAX_TOOL_NAME:
        raise InvalidRequest(
            f"A tool needs a name of 1 to {MAX_TOOL_NAME} characters, got {name!r:.80}.",
            param="tools",
        )
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidRequest(f"The description of tool {name!r} must be a string.", param="tools")
    parameters: Any = None
    for key in ("parameters", "input_schema", "inputSchema"):
        if function.get(key) is not None:
            parameters = function[key]
            break
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise InvalidRequest(
            f"The parameters of tool {name!r} must be a JSON schema object.", param="tools"
        )
    body: dict[str, Any] = {"name": str.__str__(name)}
    if description:
        body["description"] = str.__str__(description)
    body["parameters"] = plain(parameters, param="tools")
    return {"type": "function", "function": body}


def canonical_tools(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`canonical_tool` of each, in the order given (ordering is the layout's business)."""
    out = [canonical_tool(tool) for tool in tools]
    if len(out) > MAX_TOOLS:
        raise InvalidRequest(f"At most {MAX_TOOLS} tools, got {len(out)}.", param="tools")
    return out


def tool_digest(tool: Mapping[str, Any]) -> str:
    """Digest of one tool's canonical JSON; the same for two spellings of one definition."""
    return digest(canonical_json(canonical_tool(tool)))


def tools_digest(tools: Sequence[Mapping[str, Any]]) -> str:
    """Digest of a list of tools; sensitive to their order."""
    return digest(*(canonical_json(tool) for tool in canonical_tools(tools)))


def first_difference(old: Any, new: Any, path: str = "$") -> str | None:
    """The JSON path of the first place where two values differ, or None when they render alike.

    The order of keys counts, since it changes the rendered bytes.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for before, after in zip(old, new, strict=False):
            if before != after:
                return f"{path}.{after}"
            found = first_difference(old[before], new[after], f"{path}.{after}")
            if found is not None:
                return found
        if len(old) != len(new):
            longer = list(old if len(old) > len(new) else new)
            return f"{path}.{longer[min(len(old), len(new))]}"
        return None
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            found = first_difference(before, after, f"{path}[{index}]")
            if found is not None:
                return found
        return None if len(old) == len(new) else f"{path}[{min(len(old), len(new))}]"
    same = type(old) is type(new) and old == new
    return None if same else path
