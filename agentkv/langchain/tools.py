"""Tools as callers have them (functions, BaseTool, classes, dicts) in one JSON form."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentkv.client.errors import InvalidCall
from agentkv.prompt.canonical import canonical_json, canonical_tool

AnyTool = Mapping[str, Any] | type | Callable[..., Any] | BaseTool


def to_tools(tools: Sequence[AnyTool]) -> list[dict[str, Any]]:
    """Tool definitions with fixed outer keys; the inner order is the author's.

    Agents bind their tools anew for every call, so what a function or a class was converted to is
    remembered. Raises `InvalidCall(param="tools")` for what is no tool.
    """
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise _wrong(f"tools must be a list, got {type(tools).__name__}.")
    out: list[dict[str, Any]] = []
    for i, tool in enumerate(tools):
        try:
            out.append(_CONVERTED.get(tool))
        except Exception as error:
            raise _wrong(f"tools[{i}] cannot be read as a tool: {error}") from error
    return out


def names_of(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of tools that `to_tools` made."""
    return [tool["function"]["name"] for tool in tools]


def _convert(tool: AnyTool) -> dict[str, Any]:
    # `strict` is not passed on: it would rewrite the schema, and so the prompt. The grammar holds
    # the model to the schema either way.
    if not _is_definition(tool):
        tool = (isinstance(tool, Mapping) and _of_schema(tool)) or convert_to_openai_tool(tool)
    return canonical_tool(tool)  # type: ignore[arg-type]


def _of_schema(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """A tool from a JSON schema without `properties`, of which core would take the name only and
    allow any arguments; None for what core reads. Raises ValueError for what is no function."""
    kind = given.get("type")
    if "properties" in given or kind == "function":
        return None
    if not isinstance(given.get("title"), str):
        if isinstance(kind, str) and kind != "object":
            raise ValueError(f"type {kind!r} is a tool that another provider runs, not a function.")
        return None
    if kind not in (None, "object"):
        raise ValueError(
            f"the arguments of a call are an object, and its schema's type is {kind!r}."
        )
    schema = {k: v for k, v in given.items() if k not in ("title", "description")}
    about = {"description": given["description"]} if given.get("description") else {}
    return {"name": given["title"], **about, "parameters": schema} if schema else None


def _is_definition(tool: AnyTool) -> bool:
    """Whether this is a dict that is a definition already, and not a bare JSON schema."""
    if not isinstance(tool, Mapping):
        return False
    keys = ("function", "parameters", "input_schema", "inputSchema")
    return any(isinstance(tool.get(key), Mapping) for key in keys)


class _Converted:
    """Definitions by the identity of the object they came from, for as long as it lives.

    JSON text is kept and not the dict: what a caller gets is the caller's to change.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, tuple[weakref.ref[Any], tuple[Any, ...], str]] = {}

    def get(self, tool: AnyTool) -> dict[str, Any]:
        stamp = _stamp(tool)
        if stamp is None:
            return _convert(tool)
        key = id(tool)
        found = self._known.get(key)
        if found is not None and found[0]() is tool and _same(found[1], stamp):
            out: dict[str, Any] = json.loads(found[2])
            return out
        made = _convert(tool)
        try:
            ref = weakref.ref(tool, lambda gone: self._forget(key, gone))
        except TypeError:
            return made
        with self._lock:
            self._known[key] = (ref, stamp, canonical_json(made))
        return made

    def _forget(self, key: int, gone: weakref.ref[Any]) -> None:
        # No lock: this may run inside a collection, in any thread, also one that holds the lock.
        found = self._known.get(key)
        if found is not None and found[0] is gone:
            self._known.pop(key, None)


def _stamp(tool: AnyTool) -> tuple[Any, ...] | None:
    """What the definition depends on and may change while the object lives; None: do not keep."""
    if isinstance(tool, Mapping):
        return None
    if isinstance(tool, BaseTool):
        schema = tool.args_schema
        return None if isinstance(schema, dict) else (tool.name, tool.description, schema)
    return (getattr(tool, "__name__", None), getattr(tool, "__doc__", None))


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b, strict=True))


def _wrong(message: str) -> InvalidCall:
    error = InvalidCall(message)
    error.param = "tools"
    return error


_CONVERTED = _Converted()
