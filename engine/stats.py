"""Counters over an engine's life. Written by the worker only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv.engine.call import Call
    from agentkv.engine.sched.scheduler import Step

MEASURED_TOKENS = 16
"""A step tells the cost of a computed token only when it computes at least so many."""


class Counters:
    """Tokens and requests, and the running cost of computing one prompt token (milliseconds)."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.cached_by_tier = {"device": 0, "host": 0, "disk": 0}
        self.generation_tokens = 0
        self.requests = 0
        self.aborted = 0
        self.steps = 0
        self.ms_per_token = 0.0

    def stepped(self, step: Step, seconds: float) -> None:
        self.steps += 1
        computed = len(step.batch.input_ids)
        if computed >= MEASURED_TOKENS:
            cost = seconds * 1000 / computed
            self.ms_per_token = (
                cost if not self.ms_per_token else 0.8 * self.ms_per_token + 0.2 * cost
            )

    def admitted(self, prompt_tokens: int, cached_by_tier: Mapping[str, int]) -> None:
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += sum(cached_by_tier.values())
        for tier, tokens in cached_by_tier.items():
            self.cached_by_tier[tier] += tokens

    def ended(self, call: Call) -> None:
        self.requests += 1
        self.aborted += call.aborted

    def snapshot(self) -> dict[str, Any]:
        return {
            "prompt_tokens_total": self.prompt_tokens,
            "cached_tokens_total": dict(self.cached_by_tier),
            "generation_tokens_total": self.generation_tokens,
            "requests_total": self.requests,
            "aborted_total": self.aborted,
            "steps_total": self.steps,
            "prefill_ms_per_token": self.ms_per_token,
            "cache_hit_rate": self.cached_tokens / self.prompt_tokens
            if self.prompt_tokens
            else 0.0,
            "uptime_s": time.monotonic() - self.started,
        }
