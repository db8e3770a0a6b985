"""OpenAI responses: `instructions`, and `input` as text or items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentkv.trace.call import Part
from agentkv.trace.readers.blocks import pieces_of, tools_of, ttl_of
from agentkv.trace.readers.fields import Record, items, mapping, text
from agentkv.trace.readers.messages import Message, message_of, parts_of
from agentkv.trace.readers.wire.chat import default_ttl
from agentkv.trace.readers.wire.prompt import (
    Prompt,
    model_of,
    provider_of,
    schema_part,
    settings_of,
    system_part,
    tools_part,
)

NAME = "responses"

_RESULTS = ("_output", "mcp_list_tools")


def matches(body: Record, url: str = "") -> bool:
    if "input" not in body or "messages" in body or url.rstrip("/").endswith("/embeddings"):
        return False
    given = body["input"]
    if isinstance(given, str):
        return any(k in body for k in ("model", "instructions", "previous_response_id"))
    return isinstance(given, list) and all(
        isinstance(i, dict) and ("role" in i or "type" in i) for i in given
    )


def prompt(body: Record, url: str = "") -> Prompt:
    model = model_of(body)
    provider = provider_of(url, model)
    given = body.get("input")
    messages = _messages(given if isinstance(given, list) else [_user(given)])
    parts: list[Part] = [*tools_part(tools_of(body.get("tools")))]
    form = mapping(mapping(body.get("text")).get("format"))
    if form.get("type") == "json_schema":
        parts += schema_part(form)
    parts += system_part(pieces_of(body.get("instructions")))
    parts += parts_of(messages)
    made = tuple(parts)
    ttl = mapping(body.get("prompt_cache_options")).get("ttl")
    if ttl is not None:
        made = default_ttl(made, ttl_of(ttl))
    conversation = body.get("conversation")
    held = text(body.get("previous_response_id"))
    if held is None and conversation is not None:
        held = text(conversation) or text(mapping(conversation).get("id"))
    return Prompt(made, model, provider, settings_of(body), text(body.get("cache_salt")), open=held)


def _user(given: Any) -> dict[str, Any]:
    return {"role": "user", "content": given}


def _messages(given: list[Any]) -> list[Message]:
    """The items as messages; thoughts, words and calls that follow each other are one turn."""
    found: list[Message] = []
    loose = False  # whether the last item was no message of its own
    for item in given:
        message, bare = _item(item), "role" not in mapping(item)
        if found and message.role == found[-1].role == "assistant" and (bare or loose):
            found[-1] = replace(found[-1], pieces=found[-1].pieces + message.pieces)
        else:
            found.append(message)
        loose = bare
    return found


def _item(item: Any) -> Message:
    """A message, or an item of its own: a call, its result, a thought."""
    if not isinstance(item, dict) or "role" in item:
        return message_of(item)
    kind = str(item.get("type", ""))
    role = "tool" if kind.endswith(_RESULTS) else "assistant"
    return Message(role, pieces_of([item]))


def answer_of(output: Any) -> tuple[Message, ...]:
    """The items of a reply as messages."""
    return tuple(_item(i) for i in items(output))
