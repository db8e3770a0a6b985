"""OpenAI chat completions, and everything that speaks them: vLLM, SGLang, llama.cpp, Ollama, Groq,
Mistral, DeepSeek, OpenRouter, Cohere v2; and a plain `{"messages": [..]}`.
"""

from __future__ import annotations

from dataclasses import replace

from agentkv.trace.call import Part
from agentkv.trace.readers.blocks import marker_of, pieces_of, tools_of, ttl_of
from agentkv.trace.readers.fields import Record, canonical, items, mapping, pick, text
from agentkv.trace.readers.messages import message_of, parts_of
from agentkv.trace.readers.wire.prompt import (
    Prompt,
    mark_end,
    model_of,
    provider_of,
    schema_part,
    settings_of,
    tools_part,
)

NAME = "openai"


def matches(body: Record, url: str = "") -> bool:
    return isinstance(body.get("messages"), list)


def prompt(body: Record, url: str = "") -> Prompt:
    model = model_of(body)
    provider = provider_of(url, model)
    messages = [message_of(m) for m in items(body["messages"])]
    tools = tools_of(body.get("tools")) or tools_of(body.get("functions"))
    parts = [*tools_part(tools), *_schema(body, url)]
    if system := pieces_of(body.get("system")):
        parts.append(Part("system", "instructions", "system", system))
    parts += parts_of(messages)
    if documents := pieces_of([_document(d) for d in items(body.get("documents"))]):
        at = next((i for i, p in enumerate(parts) if p.kind in ("history", "question")), len(parts))
        parts.insert(at, Part("documents", "documents", None, documents))
    marked = tuple(parts)
    if body.get("cache_control"):
        marked = mark_end(parts, marker_of(body) or 0)
    ttl = mapping(body.get("prompt_cache_options")).get("ttl")
    if ttl is not None:
        marked = default_ttl(marked, ttl_of(ttl))
    settings = settings_of(body)
    if body.get("function_call") is not None:
        settings["tool_choice"] = canonical(body["function_call"])
    salt = text(pick(body, "cache_salt", "extra_key"))
    return Prompt(marked, model, provider, settings, salt)


def _schema(body: Record, url: str) -> tuple[Part, ...]:
    """OpenAI renders the schema in front of the system message; other servers keep it outside, and
    where nothing says that this is OpenAI's own model it is not put there either."""
    wanted = mapping(body.get("response_format"))
    if wanted.get("type") != "json_schema":
        return ()
    if provider_of(url, model_of(body), "unknown") not in ("openai", "azure"):
        return ()
    return schema_part(wanted.get("json_schema"))


def _document(raw: object) -> dict[str, object]:
    if isinstance(raw, dict):
        return {**raw, "type": "document"}
    return {"type": "document", "text": raw}


def default_ttl(parts: tuple[Part, ...], seconds: int) -> tuple[Part, ...]:
    """Breakpoints that name no time of their own live as long as the request says."""
    return tuple(
        replace(
            part,
            pieces=tuple(replace(p, marker=seconds) if p.marker == 0 else p for p in part.pieces),
        )
        if any(p.marker == 0 for p in part.pieces)
        else part
        for part in parts
    )
