"""Gemini `generateContent`, of the developer API and of Vertex, in either spelling."""

from __future__ import annotations

import re

from agentkv.trace.readers.blocks import tools_of
from agentkv.trace.readers.fields import Record, canonical, mapping, pick, text
from agentkv.trace.readers.messages import message_of, parts_of
from agentkv.trace.readers.wire.prompt import (
    Prompt,
    model_of,
    settings_of,
    system_part,
    tools_part,
)

NAME = "gemini"

_GENERATION = (
    "responseSchema",
    "responseJsonSchema",
    "responseMimeType",
    "thinkingConfig",
    "mediaResolution",
    "response_schema",
    "response_mime_type",
    "thinking_config",
    "media_resolution",
)
_MODEL = re.compile(r"models/([^/:]+)")


def matches(body: Record, url: str = "") -> bool:
    contents = body.get("contents")
    if isinstance(contents, str):
        return "model" in body
    if isinstance(contents, dict):
        return "parts" in contents
    return isinstance(contents, list)


def prompt(body: Record, url: str = "") -> Prompt:
    contents = body["contents"]
    # The SDK logs the settings, the tools and the system text under `config`.
    config = mapping(body.get("config"))
    body = {**config, **body}
    system = pick(body, "systemInstruction", "system_instruction")
    messages = [message_of(c) for c in (contents if isinstance(contents, list) else [contents])]
    parts = (
        *tools_part(tools_of(body.get("tools"))),
        *system_part(message_of(system).pieces if system is not None else ()),
        *parts_of(messages),
    )
    settings = settings_of(body)
    choice = pick(body, "toolConfig", "tool_config")
    if choice is not None:
        settings["tool_choice"] = canonical(choice)
    generation = mapping(pick(body, "generationConfig", "generation_config")) or config
    settings |= settings_of(generation, _GENERATION)
    in_path = _MODEL.search(url)
    model = model_of(body, in_path[1] if in_path else None)
    held = text(pick(body, "cachedContent", "cached_content"))
    return Prompt(parts, model.removeprefix("models/"), "google", settings, open=held)
