"""Tools as callers have them (functions, BaseTool, pydantic classes, dicts) in one JSON form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentkv.client.errors import InvalidCall, NotSupported
from agentkv.prompt.canonical import canonical_tool

AnyTool = dict[str, Any] | type | Callable[..., Any] | BaseTool


def to_tools(tools: Sequence[AnyTool], *, strict: bool | None = None) -> list[dict[str, Any]]:
    """Tool definitions with fixed outer keys; the inner order is the author's.

    Raises `InvalidCall` for what is no tool.
    """
    out = []
    for i, tool in enumerate(tools):
        try:
            given = tool if _is_definition(tool) else convert_to_openai_tool(tool, strict=strict)
            out.append(canonical_tool(given))  # type: ignore[arg-type]
        except Exception as error:
            raise InvalidCall(f"tools[{i}] cannot be read as a tool: {error}") from error
    return out


def _is_definition(tool: AnyTool) -> bool:
    """Whether this is a dict that is a definition already, and not a bare JSON schema."""
    if not isinstance(tool, dict):
        return False
    keys = ("function", "parameters", "input_schema", "inputSchema")
    return any(isinstance(tool.get(key), dict) for key in keys)


def check_choice(choice: Any) -> str | None:
    """`tool_choice` as it can be served: None, `auto` or `none`.

    Raises `NotSupported` for a forced call: without a grammar, forcing would be a request to the
    model in prose, which a caller could mistake for a guarantee.
    """
    if choice is None or choice is False:
        return None
    if choice in ("auto", "none"):
        return str(choice)
    raise NotSupported(
        f"tool_choice={choice!r} would force a tool call, which this version cannot guarantee. "
        'Use "auto" or "none".'
    )
