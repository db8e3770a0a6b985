"""What a request allows: which tools may be called, whether one must be, and how many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentkv.engine.errors import InvalidRequest

Mode = Literal["none", "auto", "required"]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`names`: the tools that may be called, in the order of the list of tools."""

    mode: Mode
    names: tuple[str, ...] = ()


def read_choice(choice: Any, tools: Sequence[str]) -> ToolChoice:
    """OpenAI's `tool_choice` for a request with these tools.

    None means `auto` where there are tools. Raises `InvalidRequest(param="tool_choice")` for a
    shape that is unknown, a tool that is not there, or a call that no tool can answer.
    """
    if choice is None or choice == "auto":
        return ToolChoice("auto" if tools else "none", tuple(tools))
    if choice == "none":
        return ToolChoice("none")
    if choice in ("required", "any"):
        return ToolChoice("required", _some(tools, choice))
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind in ("auto", "none", "required", "any"):
            return read_choice(kind, tools)
        if kind == "function":
            return ToolChoice("required", (_name(choice, tools, "tool_choice"),))
        if kind == "allowed_tools":
            return _allowed(choice, tools)
        raise _bad(
            f"tool_choice has type {kind!r:.80}; use function or allowed_tools, or one of the "
            "words auto, none, required."
        )
    raise _bad(
        f"tool_choice must be auto, none, required, or an object that names tools, got {choice!r:.80}."
    )


def _allowed(choice: Mapping[str, Any], tools: Sequence[str]) -> ToolChoice:
    inner = choice.get("allowed_tools")
    if not isinstance(inner, Mapping):
        raise _bad("tool_choice.allowed_tools must be an object with mode and tools.")
    mode = inner.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise _bad(f"tool_choice.allowed_tools.mode must be auto or required, got {mode!r:.80}.")
    listed = inner.get("tools")
    if isinstance(listed, (str, bytes, Mapping)) or not isinstance(listed, Sequence):
        raise _bad("tool_choice.allowed_tools.tools must be a list of functions.")
    wanted = {
        _name(tool, tools, f"tool_choice.allowed_tools.tools[{i}]") for i, tool in enumerate(listed)
    }
    names = tuple(name for name in tools if name in wanted)
    if not names:
        if mode == "required":
            raise _bad("tool_choice allows no tool, and requires a call.")
        return ToolChoice("none")
    return ToolChoice("required" if mode == "required" else "auto", names)


def _name(value: Any, tools: Sequence[str], where: str) -> str:
    function = value.get("function", value) if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise _bad(f"{where} must name a function.")
    if name not in tools:
        raise _bad(f"{where} names {name!r:.80}, which is not among the tools of this request.")
    return name


def _some(tools: Sequence[str], choice: str) -> tuple[str, ...]:
    if not tools:
        raise _bad(f"tool_choice is {choice!r}, but the request has no tools.")
    return tuple(tools)


def _bad(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="tool_choice")
