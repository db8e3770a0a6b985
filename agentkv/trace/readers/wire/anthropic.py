"""Anthropic messages, also as Bedrock and Vertex take them (`anthropic_version`)."""

from __future__ import annotations

from agentkv.trace.readers.blocks import marker_of, pieces_of, tools_of
from agentkv.trace.readers.fields import Record, items, mapping, text
from agentkv.trace.readers.messages import message_of, parts_of
from agentkv.trace.readers.wire.prompt import (
    Prompt,
    by_host,
    mark_end,
    model_of,
    provider_of,
    schema_part,
    settings_of,
    system_part,
    tools_part,
)

NAME = "anthropic"

_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document"}
)


def matches(body: Record, url: str = "") -> bool:
    """Only what tells it from the chat protocol: its version, its tools, its blocks, its system."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return False
    if "anthropic_version" in body or url.split("?")[0].rstrip("/").endswith("/v1/messages"):
        return True
    if "system" in body and "inferenceConfig" not in body and not _bedrock(body["system"]):
        return True
    if any("input_schema" in mapping(t) for t in items(body.get("tools"))):
        return True
    return any(
        mapping(b).get("type") in _BLOCKS
        for m in messages
        for b in items(mapping(m).get("content"))
    )


def _bedrock(system: object) -> bool:
    """Converse writes its blocks without a type."""
    return isinstance(system, list) and any(isinstance(b, dict) and "type" not in b for b in system)


def prompt(body: Record, url: str = "") -> Prompt:
    model = model_of(body)
    system = pieces_of(body.get("system"))
    schema = body.get("output_format") or mapping(body.get("output_config")).get("format")
    parts = (
        *tools_part(tools_of(body.get("tools"))),
        *(schema_part(schema) if schema else ()),
        *system_part(system),
        *parts_of([message_of(m) for m in items(body["messages"])]),
    )
    if body.get("cache_control"):
        parts = mark_end(parts, marker_of(body) or 0)
    by_name = "bedrock" if _on_bedrock(body, model) else provider_of("", model, NAME)
    provider = by_host(url) or by_name
    return Prompt(parts, model, provider, settings_of(body), text(body.get("cache_salt")))


def _on_bedrock(body: Record, model: str) -> bool:
    return str(body.get("anthropic_version", "")).startswith("bedrock") or model.startswith(
        ("anthropic.", "us.anthropic.", "eu.anthropic.", "apac.anthropic.", "global.anthropic.")
    )
