"""Token counts in the many shapes that servers and LangChain report them in.

Three facts are kept apart: a number of cached tokens, zero among them; and nothing said at all,
which is `None` and never zero. vLLM writes `prompt_tokens_details: null` unless it was told
otherwise, SGLang leaves the field out, and ChatOllama never has one: none of that says that
nothing was reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one call. `prompt` is the total, cached ones included; None is unknown."""

    prompt: int
    completion: int
    cached: int | None = None
    written: int | None = None


def from_server(usage: Mapping[str, Any]) -> Counts:
    """Counts of a raw `usage`: OpenAI (chat and responses), vLLM, SGLang, llama.cpp, DeepSeek,
    Anthropic, Bedrock and Gemini."""
    prompt = _first(usage, "prompt_tokens", "input_tokens", "inputTokens", "prompt_token_count")
    completion = _first(
        usage, "completion_tokens", "output_tokens", "outputTokens", "candidates_token_count"
    )
    details = _mapping(usage, "prompt_tokens_details", "input_tokens_details")
    cached = _first(details, "cached_tokens")
    written = _first(details, "cache_write_tokens", "created_cache_tokens")
    if cached is None:
        cached = _first(usage, "prompt_cache_hit_tokens", "cached_content_token_count")
    if cached is None:
        # Anthropic and Bedrock: the input they count leaves out what was read and written.
        cached = _first(usage, "cache_read_input_tokens", "cacheReadInputTokens")
        written = _first(usage, "cache_creation_input_tokens", "cacheWriteInputTokens")
        if "prompt_tokens" not in usage and (cached is not None or written is not None):
            prompt = (prompt or 0) + (cached or 0) + (written or 0)
    return _counts(prompt, completion, cached, written)


def from_langchain(usage: Mapping[str, Any]) -> Counts:
    """Counts of a LangChain `usage_metadata`. A service tier's prefix (`flex_cache_read`) is read
    too; a detail that is not there is unknown."""
    details = _mapping(usage, "input_token_details")
    cached = _detail(details, "cache_read")
    written = _detail(details, "cache_creation")
    if not written:
        # langchain-anthropic splits what was written by its time to live.
        by_ttl = [v for k, v in details.items() if k.startswith("ephemeral_") and _number(v)]
        written = sum(by_ttl) if by_ttl else written
    prompt = _first(usage, "input_tokens")
    return _counts(prompt, _first(usage, "output_tokens"), cached, written)


def _counts(
    prompt: int | None, completion: int | None, cached: int | None, written: int | None
) -> Counts:
    return Counts(prompt or 0, completion or 0, cached, written)


def _detail(details: Mapping[str, Any], name: str) -> int | None:
    found = _first(details, name)
    if found is not None:
        return found
    tiers = [v for k, v in details.items() if k.endswith(f"_{name}") and _number(v)]
    return sum(tiers) if tiers else None


def _first(values: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = values.get(name)
        if _number(value):
            return max(0, int(value))  # type: ignore[arg-type]
    return None


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _mapping(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        value = values.get(name)
        if isinstance(value, Mapping):
            return value
    return {}
