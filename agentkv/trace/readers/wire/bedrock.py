"""Bedrock converse. (`InvokeModel` takes the body of the model's own maker: see `anthropic`.)"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from agentkv.trace.readers.blocks import pieces_of, tools_of
from agentkv.trace.readers.fields import Record, canonical, items, mapping
from agentkv.trace.readers.messages import message_of, parts_of
from agentkv.trace.readers.wire.prompt import (
    Prompt,
    model_of,
    settings_of,
    system_part,
    tools_part,
)

NAME = "bedrock"

_OWN = ("inferenceConfig", "toolConfig", "guardrailConfig", "additionalModelRequestFields")
_BLOCKS = ("cachePoint", "toolUse", "toolResult", "guardContent", "reasoningContent")


def matches(body: Record, url: str = "") -> bool:
    if not isinstance(body.get("messages"), list):
        return False
    if any(k in body for k in _OWN) or "/converse" in urlsplit(url).path:
        return True
    blocks = [
        b
        for m in [*items(body["messages"]), {"content": body.get("system")}]
        for b in items(mapping(m).get("content"))
        if isinstance(b, dict) and "type" not in b
    ]
    return any(k in b for b in blocks for k in _BLOCKS) or (
        "modelId" in body and all("text" in b for b in blocks)
    )


def prompt(body: Record, url: str = "") -> Prompt:
    tools = mapping(body.get("toolConfig"))
    parts = (
        *tools_part(tools_of(tools.get("tools"))),
        *system_part(pieces_of(body.get("system"))),
        *parts_of([message_of(m) for m in items(body["messages"])]),
    )
    settings = settings_of(body)
    if tools.get("toolChoice") is not None:
        settings["tool_choice"] = canonical(tools["toolChoice"])
    extra = body.get("additionalModelRequestFields")
    if isinstance(extra, dict):
        settings |= settings_of(extra)
    return Prompt(parts, model_of(body, body.get("modelId"), model_in(url)), NAME, settings)


def model_in(url: str) -> str | None:
    """`/model/{id}/converse` and `/model/{id}/invoke` name the model in the path."""
    path = unquote(urlsplit(url).path).split("/model/")
    return path[1].rsplit("/", 1)[0] if len(path) > 1 else None
