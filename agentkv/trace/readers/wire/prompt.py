"""`Prompt`: what the body of one request says, and who it was for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from agentkv.trace.call import Part, Piece
from agentkv.trace.readers.fields import Record, canonical, dumps, text

IN_PREFIX = (
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "text",
    "verbosity",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "thinking_budget",
    "enable_thinking",
    "think",
    "effort",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "cache_control",
    "web_search_options",
    "modalities",
    "output_config",
    "output_format",
    "mcp_servers",
    "context_management",
    "citation_options",
    "safety_mode",
    "format",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "structured_outputs",
    "cached_content",
    "cachedContent",
)
"""Settings that some provider renders into the prompt or keys its cache by. Temperature and its
like are in no prefix anywhere and are left out."""

_HOSTS = {
    "openrouter.ai": "openrouter",
    "anthropic.com": "anthropic",
    "openai.azure.com": "azure",
    "openai.com": "openai",
    "mistral.ai": "mistral",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "cerebras.ai": "cerebras",
    "z.ai": "zai",
    "bigmodel.cn": "zai",
    "moonshot.ai": "moonshot",
    "moonshot.cn": "moonshot",
    "ollama.com": "ollama",
    "x.ai": "xai",
    "googleapis.com": "google",
    "amazonaws.com": "bedrock",
    "api.aws": "bedrock",
    "together.xyz": "together",
    "together.ai": "together",
    "fireworks.ai": "fireworks",
    "huggingface.co": "huggingface",
    "perplexity.ai": "perplexity",
}
_MODELS = {
    "claude": "anthropic",
    "gpt-": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "google",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "command-": "cohere",
    "grok": "xai",
}


@dataclass(frozen=True)
class Prompt:
    """One request, without its reply.

    `open`: the id of a state that the provider keeps and this prompt continues; its text is not in
    the body.
    """

    parts: tuple[Part, ...]
    model: str = ""
    provider: str = "openai"
    settings: Mapping[str, str] = field(default_factory=dict)
    salt: str | None = None
    open: str | None = None


def settings_of(body: Record, names: Iterable[str] = IN_PREFIX) -> dict[str, str]:
    """What may be part of the prefix beside the text, as canonical JSON; nulls are left out."""
    return {name: canonical(body[name]) for name in names if body.get(name) is not None}


def provider_of(url: str, model: str = "", default: str = "openai") -> str:
    """Who served the call: by the host; without one by the model's name; else the protocol."""
    host = urlsplit(url).hostname or "" if "://" in url else ""
    for end, name in _HOSTS.items():
        if host == end or host.endswith("." + end):
            return name
    if host:
        return default  # a server of somebody's own, whatever its model is called
    word = model.lower()
    for start, name in _MODELS.items():
        if word.startswith(start):
            return name
    return default


def by_host(url: str) -> str | None:
    """The provider that a host belongs to; None for a host that we do not know."""
    found = provider_of(url, default="")
    return found or None


def mark_end(parts: Sequence[Part], marker: int) -> tuple[Part, ...]:
    """A breakpoint at the very end of the prompt (automatic caching of a whole request)."""
    for index in range(len(parts) - 1, -1, -1):
        pieces = parts[index].pieces
        if pieces:
            marked = replace(
                parts[index], pieces=(*pieces[:-1], replace(pieces[-1], marker=marker))
            )
            return (*parts[:index], marked, *parts[index + 1 :])
    return tuple(parts)


def tools_part(pieces: tuple[Piece, ...]) -> tuple[Part, ...]:
    """The part `tools`; none where there are none."""
    return (Part("tools", "tools", None, pieces),) if pieces else ()


def system_part(pieces: tuple[Piece, ...]) -> tuple[Part, ...]:
    """The part `system`, of protocols that have it beside the messages."""
    return (Part("system", "instructions", "system", pieces),) if pieces else ()


def schema_part(schema: Any) -> tuple[Part, ...]:
    """The schema of the answer, where the provider renders it in front of the instructions."""
    return (Part("response_format", "instructions", None, (Piece("schema", dumps(schema)),)),)


def model_of(body: Record, *others: Any) -> str:
    """The model's name: the body's, or the first other that is text."""
    return next((m for m in (text(body.get("model")), *map(text, others)) if m), "")
