"""`/metrics`: counters of tokens and requests, in Prometheus' text format.

There is no hit-rate gauge: a rate over which time, and of whose traffic? Divide the counters:
`rate(agentkv:cached_tokens_total[5m]) / rate(agentkv:prompt_tokens_total[5m])`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.types import RequestOutput

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_LATENCY = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

_COUNTERS = {
    "prompt_tokens": "Prompt tokens of admitted requests, cached ones included.",
    "generation_tokens": "Tokens that were sampled.",
    "evicted_tokens": "Cached tokens that were dropped to make room.",
    "decayed_pins": "Pins that ended early since others needed their share.",
    "refused_pins": "Pins that calls asked for and that could not be had.",
    "retractions": "Times a running request gave its memory back and queued again.",
}
_GAUGES = {
    "num_requests_running": "Requests in the running batch.",
    "num_requests_waiting": "Requests in the queue.",
    "token_usage": "Share of the KV pool that requests in flight hold, 0 to 1.",
    "pool_tokens": "Size of the KV pool in tokens.",
    "free_tokens": "Tokens of the pool that are free.",
    "evictable_tokens": "Tokens of the pool that are cached and may be dropped.",
    "locked_tokens": "Tokens of the pool that are cached and in use.",
    "pinned_tokens": "Tokens under a pin, in memory or evicted.",
    "paused_tokens": "Tokens of sessions that are paused, in memory or evicted.",
}


_TIER_COUNTERS = {
    "stored_tokens": "Tokens that were copied into a lower tier.",
    "loaded_tokens": "Tokens that were brought back from a lower tier.",
    "declined_tokens": "Tokens that could have been brought back, and were faster to compute.",
    "skipped_tokens": "Tokens that a lower tier had no room for.",
    "failed_transfers": "Transfers between tiers that ended badly; each was a miss.",
    "bad_groups": "Files of the disk cache that could not be used and were removed.",
    "lost": "Times that a shared store could not be reached; each was a miss.",
    "written_bytes": "Bytes written to the disk cache.",
    "read_bytes": "Bytes read from the disk cache.",
}
_TIER_GAUGES = {
    "tokens": "Tokens that a lower tier has a copy of.",
    "capacity_tokens": "Size of a lower tier in tokens.",
    "capacity_bytes": "Most bytes that the disk cache may take.",
    "bytes": "Bytes that the disk cache takes.",
    "reachable": "Whether a shared store can be reached: 1, or 0 for as long as nobody tries.",
    "bytes_per_second": "Measured speed of bringing K/V back.",
    "tokens_per_second": "Measured speed of computing a prompt.",
}


def _tiers(tiers: Mapping[str, Mapping[str, float]]) -> Iterable[Metric]:
    for name, text in _TIER_COUNTERS.items():
        found = {tier: v[f"{name}_total"] for tier, v in tiers.items() if f"{name}_total" in v}
        if found:
            counter = CounterMetricFamily(f"agentkv:tier_{name}", text, labels=["tier"])
            for tier, value in found.items():
                counter.add_metric([tier], value)
            yield counter
    for name, text in _TIER_GAUGES.items():
        found = {tier: v[name] for tier, v in tiers.items() if name in v}
        if found:
            gauge = GaugeMetricFamily(f"agentkv:tier_{name}", text, labels=["tier"])
            for tier, value in found.items():
                gauge.add_metric([tier], value)
            yield gauge


class _Engine(Collector):
    """The engine's own counts, read when somebody scrapes: one source, nothing to keep in step."""

    def __init__(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"agentkv:{name}", text, value=stats[f"{name}_total"])
        cached = CounterMetricFamily(
            "agentkv:cached_tokens", "Prompt tokens that came out of the cache.", labels=["tier"]
        )
        for tier, tokens in stats["cached_tokens_total"].items():
            cached.add_metric([tier], tokens)
        yield cached
        hints = CounterMetricFamily(
            "agentkv:hints", "Hints of clients about sessions.", labels=["action"]
        )
        for action, count in stats["hints_total"].items():
            hints.add_metric([action], count)
        yield hints
        memory = GaugeMetricFamily(
            "agentkv:kv_bytes", "Size of the KV pool in bytes.", labels=["dtype"]
        )
        memory.add_metric([stats["kv_dtype"]], stats["kv_bytes"])
        yield memory
        yield from _tiers(stats.get("tiers") or {})
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"agentkv:{name}", text, value=stats[name])


class Metrics:
    """One server's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "agentkv:requests",
            "Finished requests by how they ended (abort: the client left; error: refused or failed).",
            ["finish_reason"],
            registry=self._registry,
        )
        self._ttft = Histogram(
            "agentkv:time_to_first_token_seconds",
            "From the submission of a request to its first token.",
            buckets=_TTFT,
            registry=self._registry,
        )
        self._latency = Histogram(
            "agentkv:e2e_request_latency_seconds",
            "From the arrival of a request to the end of its reply.",
            buckets=_LATENCY,
            registry=self._registry,
        )

    def watch(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        """Add the engine's counts."""
        self._registry.register(_Engine(stats))

    def finished(self, output: RequestOutput, seconds: float) -> None:
        """One request of the engine is done, `seconds` after it arrived here."""
        self._requests.labels(output.finish_reason).inc()
        if output.completion_tokens:
            self._ttft.observe(output.times.ttft / 1000)
        self._latency.observe(seconds)

    def failed(self, reason: str) -> None:
        """One request ended without an output: `abort` or `error`."""
        self._requests.labels(reason).inc()

    def text(self) -> bytes:
        """The exposition, without the `_created` series (a gauge per counter, of no use here)."""
        lines = generate_latest(self._registry).splitlines(keepends=True)
        return b"".join(line for line in lines if b"_created" not in line)


async def metrics(request: Request) -> Response:
    """`GET /metrics`."""
    text = await asyncio.to_thread(request.app.state.service.metrics.text)
    return Response(text, media_type=None, headers={"content-type": CONTENT_TYPE})
