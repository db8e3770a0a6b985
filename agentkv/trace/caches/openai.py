"""OpenAI's prompt caching: whatever begins alike, and since GPT-5.6 what ends at a breakpoint."""

from __future__ import annotations

from agentkv.trace.caches.base import Hit, Namespace
from agentkv.trace.caches.breakpoints import BreakpointCache
from agentkv.trace.caches.radix import RadixCache
from agentkv.trace.caches.target import target
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered


class OpenAICache:
    """Each model by its own rule. A log with models of both kinds keeps two caches."""

    def __init__(self) -> None:
        facts = target("openai")
        self._facts = facts
        self._prefixes = RadixCache(
            "openai",
            policy="lru",
            least=facts.least,
            step=facts.granularity,
            seconds=60.0 * facts.ttl_minutes[0],
        )
        self._breakpoints = BreakpointCache(facts, implicit=True)

    @property
    def name(self) -> str:
        return f"openai, as of {self._facts.as_of}"

    @property
    def capped(self) -> bool:
        return self._prefixes.capped or self._breakpoints.capped

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        # A hash trace has no messages that breakpoints could end.
        if self._facts.exact(call.model) and rendered.pieces:
            return self._breakpoints.call(call, rendered, namespace)
        return self._prefixes.call(call, rendered, namespace)
