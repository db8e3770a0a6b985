"""Token counts in a reply: OpenAI's usage, DeepSeek's pair, and the engine's cache facts.

OpenAI's convention: cached tokens are *part* of `prompt_tokens`. So are written ones, and the two
never overlap; what a price tool computes as `prompt - cached - written` is never negative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from agentkv.engine.serve.logprobs import finite
from agentkv.engine.types import CacheFacts, Miss, RequestOutput, load_block

SCHEMA = 1


class PromptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """`usage.prompt_tokens_details`; integers always, 0 on a miss."""

    cached_tokens: int
    cache_write_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """`usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    prompt_cache_hit_tokens: int
    prompt_cache_miss_tokens: int
    agentkv: dict[str, Any]


def usage_of(outputs: Sequence[RequestOutput]) -> Usage:
    """The usage of one HTTP request, which may hold several prompts.

    A prompt counts once however many choices it has. With several prompts the numbers are sums,
    `miss` is the first prompt's, and `agentkv.calls` has one block for each.
    """
    prompt = sum(o.cache.prompt_tokens for o in outputs)
    cached = sum(o.cache.cached_tokens for o in outputs)
    completion = sum(o.completion_tokens for o in outputs)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptDetails(
            cached_tokens=cached, cache_write_tokens=sum(written(o.cache) for o in outputs)
        ),
        prompt_cache_hit_tokens=cached,
        prompt_cache_miss_tokens=prompt - cached,
        agentkv=_blocks(outputs),
    )


def written(facts: CacheFacts) -> int:
    """Prompt tokens that this call added to the cache: whole pages beyond those it found."""
    whole = facts.prompt_tokens // facts.page_size * facts.page_size
    return max(0, whole - facts.cached_tokens)


def _blocks(outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    blocks = [cache_block(o) for o in outputs]
    if len(blocks) == 1:
        return blocks[0]
    tiers: Counter[str] = Counter()
    for o in outputs:
        tiers.update(o.cache.cached_by_tier)
    return {
        **blocks[0],
        "cached_by_tier": dict(tiers),
        "reusable_tokens": sum(o.cache.reusable_tokens for o in outputs),
        "resident_tokens": sum(o.cache.resident_tokens for o in outputs),
        "saved_prefill_ms": round(sum(o.times.saved_prefill for o in outputs), 3),
        "calls": blocks,
    }


def cache_block(output: RequestOutput) -> dict[str, Any]:
    """`usage.agentkv` of one prompt."""
    facts, times = output.cache, output.times
    by_name = {span.name: span for span in output.spans}
    segments = []
    for name, tokens, cached in facts.span_cached:
        span = by_name.get(name)
        segments.append(
            {
                "name": name,
                "kind": span.kind if span else None,
                "stability": span.stability if span else None,
                "tokens": tokens,
                "cached": cached,
            }
        )
    weighed = next((c.opener_scores for c in output.choices if c.opener_scores is not None), None)
    return {
        "schema": SCHEMA,
        "page_size": facts.page_size,
        "cached_by_tier": {"device": 0, "host": 0, "disk": 0, **facts.cached_by_tier},
        "reusable_tokens": facts.reusable_tokens,
        "resident_tokens": facts.resident_tokens,
        "miss": miss_block(facts.miss, quote=output.session is not None),
        "segments": segments,
        "ms": {
            "queue": round(times.queue, 3),
            "prefill": round(times.prefill, 3),
            "ttft": round(times.ttft, 3),
            "decode": round(times.decode, 3),
        },
        "saved_prefill_ms": round(times.saved_prefill, 3),
        **({"load": load_block(facts.load)} if facts.load is not None else {}),
        **({"tool_choice": _scores(weighed)} if weighed is not None else {}),
    }


def _scores(weighed: tuple[float, float]) -> dict[str, float]:
    """Log-probabilities of beginning a tool call and of the best other beginning."""
    opener, text = weighed
    return {"opener": round(finite(opener), 4), "text": round(finite(text), 4)}


def miss_block(miss: Miss | None, *, quote: bool) -> dict[str, Any] | None:
    """`usage.agentkv.miss`.

    `quote`: whether to show what stood there before. Without a session the call is compared with
    whoever sent the most similar prompt, and nobody's text goes to another client.
    """
    if miss is None:
        return None
    return {
        "token": miss.token,
        "reason": miss.reason,
        "segment": miss.segment,
        "was": miss.was if quote else None,
        "now": miss.now,
        "detail": miss.detail,
    }


def cache_headers(facts: Sequence[CacheFacts]) -> dict[str, str]:
    """The `x-agentkv-*` headers, known before the first token is."""
    headers = {
        "x-agentkv-prompt-tokens": str(sum(f.prompt_tokens for f in facts)),
        "x-agentkv-cached-tokens": str(sum(f.cached_tokens for f in facts)),
    }
    miss = facts[0].miss if facts else None
    if miss is not None:
        headers["x-agentkv-miss-reason"] = miss.reason
    return headers
