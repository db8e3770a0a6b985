"""Canonical bytes of tool definitions and JSON: the same that the engine renders."""

from agentkv.engine.text.canonical import (
    canonical_json,
    canonical_tool,
    canonical_tools,
    tool_digest,
    tool_name,
    tools_digest,
)

__all__ = [
    "canonical_json",
    "canonical_tool",
    "canonical_tools",
    "tool_digest",
    "tool_name",
    "tools_digest",
]
