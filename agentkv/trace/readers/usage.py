"""What the provider counted, whatever it calls it."""

from __future__ import annotations

from typing import Any

from agentkv.trace.call import Usage
from agentkv.trace.readers.fields import Record, count, mapping, pick


def usage_of(raw: Any) -> Usage:
    """Tokens of a usage object of any provider; None where it says nothing.

    Anthropic and Bedrock count the uncached rest as their input, so the prompt is the sum. OpenAI,
    Gemini, Cohere and their like count the cached tokens in.
    """
    raw = mapping(raw)
    if not raw:
        return Usage()
    for form in (_anthropic, _bedrock, _gemini, _cohere, _openai):
        found = form(raw)
        if found is not None:
            return found
    return Usage()


def merged(first: Usage, second: Usage) -> Usage:
    """The first, completed by the second where the first knows nothing."""
    return Usage(
        first.prompt if first.prompt is not None else second.prompt,
        first.cached if first.cached is not None else second.cached,
        first.written if first.written is not None else second.written,
        first.completion if first.completion is not None else second.completion,
    )


def _total(rest: int | None, read: int | None, written: int | None) -> int | None:
    return None if rest is None else rest + (read or 0) + (written or 0)


def _anthropic(raw: Record) -> Usage | None:
    if "cache_read_input_tokens" not in raw and "cache_creation_input_tokens" not in raw:
        return None
    if (
        "prompt_tokens" in raw
    ):  # LiteLLM's mixture: an OpenAI count with Anthropic's names beside it
        return None
    read, written = (
        count(raw.get("cache_read_input_tokens")),
        count(raw.get("cache_creation_input_tokens")),
    )
    prompt = _total(count(pick(raw, "input_tokens", "input")), read, written)
    return Usage(prompt, read, written, count(pick(raw, "output_tokens", "output")))


def _bedrock(raw: Record) -> Usage | None:
    if "inputTokens" not in raw and "inputTokenCount" not in raw:
        return None
    read = count(pick(raw, "cacheReadInputTokens", "cacheReadInputTokenCount"))
    written = count(pick(raw, "cacheWriteInputTokens", "cacheWriteInputTokenCount"))
    prompt = _total(count(pick(raw, "inputTokens", "inputTokenCount")), read, written)
    return Usage(prompt, read, written, count(pick(raw, "outputTokens", "outputTokenCount")))


def _gemini(raw: Record) -> Usage | None:
    prompt = count(pick(raw, "promptTokenCount", "prompt_token_count"))
    if prompt is None:
        return None
    answer = count(pick(raw, "candidatesTokenCount", "candidates_token_count"))
    thought = count(pick(raw, "thoughtsTokenCount", "thoughts_token_count"))
    made = None if answer is None and thought is None else (answer or 0) + (thought or 0)
    cached = count(pick(raw, "cachedContentTokenCount", "cached_content_token_count"))
    return Usage(prompt, cached, None, made)


def _cohere(raw: Record) -> Usage | None:
    tokens = mapping(raw.get("tokens"))
    if not tokens:
        return None
    prompt = count(tokens.get("input_tokens"))
    return Usage(prompt, count(raw.get("cached_tokens")), None, count(tokens.get("output_tokens")))


def _openai(raw: Record) -> Usage | None:
    details = mapping(
        pick(raw, "prompt_tokens_details", "input_tokens_details", "input_token_details")
    )
    cached = count(
        pick(
            {**raw, **details},
            "cached_tokens",
            "cache_read",
            "prompt_cache_hit_tokens",
            "cache_read_input_tokens",
        )
    )
    written = count(
        pick(
            {**raw, **details},
            "cache_write_tokens",
            "cache_creation",
            "cache_creation_tokens",
            "cache_creation_input_tokens",
        )
    )
    prompt = count(pick(raw, "prompt_tokens", "input_tokens", "promptTokens"))
    if prompt is None:
        hit = count(raw.get("prompt_cache_hit_tokens"))
        missed = count(raw.get("prompt_cache_miss_tokens"))
        prompt = hit + missed if hit is not None and missed is not None else None
    made = count(pick(raw, "completion_tokens", "output_tokens", "completionTokens"))
    if prompt is None and cached is None and written is None and made is None:
        return None
    return Usage(prompt, cached, written, made)
