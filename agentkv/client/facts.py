"""What other servers say about reuse: their counts, made a report.

`agentkv.report.counts` knows the shapes of `usage`. Beside it, llama.cpp has `timings` (`cache_n`
of the prompt came from memory, `prompt_n` was computed). Null or absent is not 0: vLLM and SGLang
say nothing unless a flag of theirs is set. SGLang leaves the field out where it would be 0, so
there a server that was seen to report means 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkv.client.base import CallRequest
from agentkv.client.split import split, weigh
from agentkv.report import counts
from agentkv.report.parts import MissUse
from agentkv.report.report import CacheReport


def cached_of(data: Mapping[str, Any]) -> int | None:
    """Cached prompt tokens in a reply (or the gathered end of a stream); None where unsaid."""
    usage, timings = _mapping(data.get("usage")), _mapping(data.get("timings"))
    found = counts.from_server(usage).cached
    if found is None:
        found = _count(usage.get("cached_tokens"))  # Moonshot's place for it
    return _count(timings.get("cache_n")) if found is None else found


def report_of(
    request: CallRequest, data: Mapping[str, Any], *, absent_is_zero: bool = False
) -> CacheReport:
    """The report of a call to another server: its totals, and an estimated split.

    The reason of a miss is always `unknown`: no such server gives one.
    """
    usage, timings = _mapping(data.get("usage")), _mapping(data.get("timings"))
    said = counts.from_server(usage)
    cached = cached_of(data)
    known = cached is not None or absent_is_zero
    prompt = said.prompt
    if not prompt and (computed := _count(timings.get("prompt_n"))) is not None:
        prompt = computed + (_count(timings.get("cache_n")) or 0)
    if not prompt:
        prompt = max(1, round(sum(weight for _, weight in weigh(request))))
    cached = min(cached or 0, prompt)
    miss = None
    if not known:
        miss = MissUse(0, "unknown", detail="the server does not say what it reused")
    elif cached < prompt:
        miss = MissUse(cached, "unknown", detail="the server does not say why")
    times = (("prefill", "prompt_ms"), ("decode", "predicted_ms"))
    return CacheReport(
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=said.completion or _count(timings.get("predicted_n")) or 0,
        cached_by_tier={"device": cached, "host": 0, "disk": 0},
        reusable_tokens=cached,
        resident_tokens=cached,
        ms={
            name: round(float(timings[key]), 3)
            for name, key in times
            if isinstance(timings.get(key), (int, float))
        },
        segments=split(request, prompt, cached),
        miss=miss,
        cached_known=known,
        estimated=True,
        # Nothing is claimed to have been written where the server does not say so.
        written_tokens=said.written or 0,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
