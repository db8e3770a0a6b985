"""A cache model by its name."""

from __future__ import annotations

from agentkv.trace.caches.anthropic import AnthropicCache
from agentkv.trace.caches.base import CacheModel
from agentkv.trace.caches.radix import RadixCache
from agentkv.trace.caches.slots import SlotCache
from agentkv.trace.caches.target import target, targets


def cache_model(
    name: str = "agentkv",
    *,
    size: int | None = None,
    policy: str | None = None,
    model: str | None = None,
    slots: int = 4,
) -> CacheModel:
    """The model of a target (`agentkv`, `sglang`, `vllm`, `openai`, `anthropic`, `deepseek`,
    `gemini`, `llamacpp`).

    `size`: tokens that it holds; None for unlimited. `policy`: `lru` or `hot_lru`, for the radix
    trees. `model` chooses among a provider's minimums. Raises ValueError: an unknown name, or a
    size where the target has none to set.
    """
    facts = target(name)
    if size is not None and name not in ("agentkv", "sglang", "vllm"):
        raise ValueError(f"the size of {name}'s cache is not known; leave the pool's size out.")
    if name == "anthropic":
        return AnthropicCache()
    if name == "llamacpp":
        return SlotCache(slots)
    if name in ("agentkv", "sglang", "vllm"):
        return RadixCache(
            name,
            page_size=facts.granularity,
            size=size,
            policy=policy or ("hot_lru" if name == "agentkv" else "lru"),
        )
    return RadixCache(
        f"{name}, as of {facts.as_of}",
        policy="lru",
        page_size=1,
        minimum=facts.least(model),
        step=max(1, facts.granularity),
        seconds=60.0 * facts.ttl_minutes[0] if facts.ttl_minutes else None,
    )


def names() -> list[str]:
    """The targets that `cache_model` knows."""
    return list(targets())
