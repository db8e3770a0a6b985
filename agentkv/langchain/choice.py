"""`tool_choice` and `response_format` as LangChain's callers spell them, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_function

from agentkv.client.errors import InvalidCall

_WORDS = {"auto": "auto", "none": "none", "any": "required", "required": "required"}

_READ_BY_CORE = ("properties", "parameters", "function", "input_schema", "inputSchema")


def as_choice(
    choice: Any, names: Sequence[str], allowed: Sequence[str] | None = None
) -> str | dict[str, Any] | None:
    """What may be answered, given tools called `names`: None, `auto`, `none`, `required`, or one of
    OpenAI's objects for a named tool or for allowed tools.

    Accepts True (a call of some tool), a tool's name, and the objects of OpenAI and Anthropic.
    `allowed` narrows the tools further; the prompt keeps all of them. Raises `InvalidCall` for a
    tool that is not there.
    """
    wanted, inner = _read(choice)
    if inner is not None:
        allowed = inner if allowed is None else [name for name in allowed if name in inner]
    _known(allowed or (), names, "allowed_tools")
    if wanted is not None and wanted not in _WORDS:
        _known((wanted,), names, "tool_choice")
        if allowed is not None and wanted not in allowed:
            raise _wrong(f"tool_choice {wanted!r} is not one of the allowed tools.", "tool_choice")
        return {"type": "function", "function": {"name": wanted}}
    word = None if wanted is None else _WORDS[wanted]
    if word == "required" and (not names or (allowed is not None and not allowed)):
        raise _wrong("tool_choice demands a call, and there is no tool to call.", "tool_choice")
    if word == "none" or allowed is None or set(allowed) >= set(names):
        return word if names else None
    if not allowed:
        return "none"
    tools = [{"type": "function", "function": {"name": n}} for n in names if n in set(allowed)]
    mode = "required" if word == "required" else "auto"
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def read_allowed(value: Any) -> list[str] | None:
    """`allowed_tools` as a list of names. Raises `InvalidCall` for anything else: a name alone is
    iterable too, letter by letter."""
    if value is None:
        return None
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise _wrong(f"allowed_tools must be a list of names, got {value!r:.200}.", "allowed_tools")
    names = list(value)
    if not all(isinstance(name, str) for name in names):
        raise _wrong(f"allowed_tools must be names, got {names!r:.200}.", "allowed_tools")
    return names


def _read(choice: Any) -> tuple[str | None, list[str] | None]:
    """A choice as a word or a name, and the names that it allows, where it lists them."""
    if choice is None or choice is False:
        return None, None
    if choice is True:
        return "required", None
    if isinstance(choice, str):
        return choice, None
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind == "allowed_tools":
            inner = choice.get("allowed_tools", choice)
            if isinstance(inner, Mapping) and isinstance(inner.get("tools"), Sequence):
                return str(inner.get("mode", "auto")), [_name(tool) for tool in inner["tools"]]
        elif name := _name(choice):
            return name, None
        elif kind in _WORDS:
            return kind, None
    raise _wrong(f"tool_choice cannot be read: {choice!r:.200}.", "tool_choice")


def _name(tool: Any) -> str:
    if isinstance(tool, str):
        return tool
    if not isinstance(tool, Mapping):
        return ""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
    return name if isinstance(name, str) else ""


def _known(wanted: Sequence[str], names: Sequence[str], param: str) -> None:
    for name in wanted:
        if name not in names:
            have = ", ".join(names) or "none"
            raise _wrong(f"{param} names {name!r}, which is no tool here (there: {have}).", param)


def as_response_format(value: Any, *, name: str = "answer") -> dict[str, Any] | None:
    """`value` as `response_format`: one of OpenAI's objects, a JSON schema, or a class.

    Raises `InvalidCall` when it is none of these.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        kind = value.get("type")
        if kind in ("text", "json_object") and len(value) == 1:
            return dict(value)
        if kind == "json_schema":
            inner = value.get("json_schema")
            return _format(inner if isinstance(inner, Mapping) else value, name)
        if isinstance(value.get("schema"), Mapping):
            return _format(value, name)
        called = value.get("name", value.get("title"))
        if not isinstance(called, str):
            return _format({"schema": value}, name)
        bare = {k: v for k, v in value.items() if k not in ("name", "title", "description")}
        if bare and kind != "function" and not any(key in value for key in _READ_BY_CORE):
            # A list, a choice, a map: core would take the name only, and allow any object.
            about = {"description": value.get("description")}
            return _format({"name": called, **about, "schema": bare}, name)
    try:
        function = convert_to_openai_function(value)
    except Exception as error:
        raise _wrong(f"no schema can be read from it: {error}", "response_format") from error
    made = {**function, "schema": function.get("parameters") or {"type": "object"}}
    return _format(made, name)


def _format(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    schema = given.get("schema")
    if not isinstance(schema, Mapping):
        raise _wrong("response_format has no schema.", "response_format")
    inner: dict[str, Any] = {"name": str(given.get("name") or name)}
    if given.get("description"):
        inner["description"] = given["description"]
    if given.get("strict") is not None:
        inner["strict"] = bool(given["strict"])
    inner["schema"] = schema
    return {"type": "json_schema", "json_schema": inner}


def _wrong(message: str, param: str) -> InvalidCall:
    error = InvalidCall(message)
    error.param = param
    return error
