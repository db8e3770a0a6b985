"""A cache model by its name."""

from __future__ import annotations

from agentkv.trace.caches.base import CacheModel
from agentkv.trace.caches.breakpoints import BreakpointCache
from agentkv.trace.caches.openai import OpenAICache
from agentkv.trace.caches.radix import RadixCache
from agentkv.trace.caches.slots import SlotCache
from agentkv.trace.caches.target import target, targets

SIZED = ("agentkv", "sglang", "vllm")
"""Those whose size is the user's to set."""


def cache_model(
    name: str = "agentkv", *, size: int | None = None, policy: str | None = None, slots: int = 4
) -> CacheModel:
    """A new, empty model of a target (one of `names()`).

    `size`: tokens that it holds; None for unlimited. `policy`: one of `POLICIES` (lru, hot,
    lfu); None for the target's own. `slots`: of llama.cpp. A provider's minimum, steps and time to
    live are those of each call's model. Raises ValueError: an unknown name, or a size or a policy
    where the target has none to set.
    """
    facts = target(name)
    if name not in SIZED:
        for what, given in (("size", size), ("policy", policy)):
            if given is not None:
                raise ValueError(
                    f"the {what} of {name}'s cache cannot be set; leave it out, or choose one of "
                    f"{', '.join(SIZED)}."
                )
    if name == "anthropic":
        return BreakpointCache(facts)
    if name == "openai":
        return OpenAICache()
    if name == "llamacpp":
        return SlotCache(slots)
    if name in SIZED:
        own = "hot" if name == "agentkv" else "lru"
        return RadixCache(name, page_size=facts.granularity, size=size, policy=policy or own)
    return RadixCache(
        f"{name}, as of {facts.as_of}",
        policy="lru",
        least=facts.least,
        step=facts.granularity,
        seconds=60.0 * facts.ttl_minutes[0] if facts.ttl_minutes else None,
    )


def names() -> list[str]:
    """The targets that `cache_model` knows."""
    return list(targets())
