"""`CacheReport`: what one call reused, what it computed, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentkv.engine.types import RequestOutput
from agentkv.layout.arrangement import Arrangement
from agentkv.report.advice import advise
from agentkv.report.parts import LayoutUse, MissUse, SegmentUse, clip, folded

SCHEMA = 1
KEY = "agentkv"
SUMMARY_BYTES = 2048
"""A summary lives in checkpoints, so it stays smaller than this, as ASCII JSON."""

Detail = Literal["summary", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReport:
    """The facts of one call. Tokens are counts, times are milliseconds.

    `reusable_tokens` is what the session's earlier calls had in common with the prompt,
    `resident_tokens` what of it was in memory on arrival, `cached_tokens` what was used: the three
    say where a hit was lost. `layout` is None when the prompt was sent as it was given by
    something that knows no layout.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int = 0
    cached_by_tier: Mapping[str, int] = field(default_factory=dict)
    reusable_tokens: int = 0
    resident_tokens: int = 0
    page_size: int = 1
    ms: Mapping[str, float] = field(default_factory=dict)
    saved_prefill_ms: float = 0.0
    segments: tuple[SegmentUse, ...] = ()
    miss: MissUse | None = None
    layout: LayoutUse | None = None

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that had to be computed; at least 1."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_rate(self) -> float:
        """Share of the prompt that was read from memory, to three digits."""
        return round(self.cached_tokens / self.prompt_tokens, 3) if self.prompt_tokens else 0.0

    @property
    def reason(self) -> str | None:
        """Why reuse ended where it did; None when nothing was missed."""
        return self.miss.reason if self.miss else None

    @property
    def created_tokens(self) -> int:
        """Prompt tokens that this call added to the cache: whole pages only."""
        whole = self.prompt_tokens // self.page_size * self.page_size
        return max(0, whole - self.cached_tokens)

    # -- where it comes from ---------------------------------------------------------------------

    @classmethod
    def from_output(cls, output: RequestOutput) -> CacheReport:
        """The report of a call that the in-process engine finished."""
        cache, times = output.cache, output.times
        spans = {span.name: span for span in output.spans}
        segments = []
        for name, tokens, cached in cache.span_cached:
            span = spans.get(name)
            kind = span.kind if span else "context"
            segments.append(
                SegmentUse(name, kind, span.stability if span else None, tokens, cached)
            )
        return cls(
            prompt_tokens=cache.prompt_tokens,
            cached_tokens=cache.cached_tokens,
            completion_tokens=output.completion_tokens,
            cached_by_tier=_tiers(cache.cached_by_tier),
            reusable_tokens=cache.reusable_tokens,
            resident_tokens=cache.resident_tokens,
            page_size=cache.page_size,
            ms={
                "queue": round(times.queue, 3),
                "prefill": round(times.prefill, 3),
                "ttft": round(times.ttft, 3),
                "decode": round(times.decode, 3),
            },
            saved_prefill_ms=round(times.saved_prefill, 3),
            segments=tuple(segments),
            miss=MissUse.from_miss(cache.miss) if cache.miss else None,
        )

    @classmethod
    def from_usage(cls, usage: Mapping[str, Any]) -> CacheReport:
        """The report in the `usage` of an HTTP reply.

        Reads what `agentkv serve` writes (`usage.agentkv`), and from other servers the counts of
        OpenAI's shape and DeepSeek's; what a server does not say is not made up.
        """
        details = usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        if cached is None:
            cached = usage.get("prompt_cache_hit_tokens") or 0
        facts = usage.get(KEY) or {}
        miss = facts.get("miss")
        return cls(
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            cached_tokens=int(cached),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            cached_by_tier=_tiers(facts.get("cached_by_tier") or {"device": int(cached)}),
            reusable_tokens=int(facts.get("reusable_tokens", cached)),
            resident_tokens=int(facts.get("resident_tokens", cached)),
            page_size=int(facts.get("page_size") or 1),
            ms={k: float(v) for k, v in (facts.get("ms") or {}).items()},
            saved_prefill_ms=float(facts.get("saved_prefill_ms") or 0.0),
            segments=tuple(SegmentUse.from_dict(s) for s in facts.get("segments") or ()),
            miss=MissUse.from_dict(miss) if miss else None,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CacheReport:
        """The inverse of `to_dict("full")`. Raises ValueError for a schema that is newer."""
        schema = int(data.get("schema", SCHEMA))
        if schema > SCHEMA:
            raise ValueError(f"the report has schema {schema}; this version reads {SCHEMA}.")
        miss, layout = data.get("miss"), data.get("layout")
        return cls(
            prompt_tokens=int(data.get("prompt_tokens", 0)),
            cached_tokens=int(data.get("cached_tokens", 0)),
            completion_tokens=int(data.get("completion_tokens", 0)),
            cached_by_tier=_tiers(data.get("cached_by_tier") or {}),
            reusable_tokens=int(data.get("reusable_tokens", 0)),
            resident_tokens=int(data.get("resident_tokens", 0)),
            page_size=int(data.get("page_size", 1)),
            ms={k: float(v) for k, v in (data.get("ms") or {}).items()},
            saved_prefill_ms=float(data.get("saved_prefill_ms", 0.0)),
            segments=tuple(SegmentUse.from_dict(s) for s in data.get("segments") or ()),
            miss=MissUse.from_dict(miss) if miss else None,
            layout=LayoutUse.from_dict(layout) if layout else None,
        )

    @classmethod
    def from_message(cls, message: Any) -> CacheReport | None:
        """The report that a LangChain message, chunk or generation carries; None without one."""
        for name in ("response_metadata", "generation_info"):
            holder = getattr(message, name, None)
            if isinstance(holder, Mapping) and isinstance(holder.get(KEY), Mapping):
                return cls.from_dict(holder[KEY])
        inner = getattr(message, "message", None)
        return cls.from_message(inner) if inner is not None else None

    def with_layout(self, arrangement: Arrangement) -> CacheReport:
        """The same with what the layout knows: what moved, and what that says about the miss."""
        layout = LayoutUse.from_dict(arrangement.to_dict())
        miss = self.miss
        if miss is not None:
            miss = replace(miss, advice=miss.advice or advise(miss, arrangement))
        return replace(self, layout=layout, miss=miss)

    # -- where it goes ---------------------------------------------------------------------------

    def to_dict(self, detail: Detail = "summary") -> dict[str, Any]:
        """JSON-ready. `summary` sums plain messages by kind and stays under 2 KB; `full` is all."""
        if detail == "full":
            return self._dict(self.segments, self.miss, self.layout)
        layout = self.layout
        for count, chars, listed in ((16, 80, 8), (12, 60, 4), (8, 40, 2), (6, 20, 0)):
            segments = tuple(
                replace(s, name=clip(s.name, 48) or "") for s in folded(self.segments, count)
            )
            miss = self.miss.clipped(chars) if self.miss else None
            if layout is not None:
                layout = replace(
                    layout,
                    moved=tuple((clip(a, 48) or "", b) for a, b in layout.moved[: 2 * listed]),
                    refused=tuple(
                        (clip(a, 48) or "", clip(b, 2 * chars) or "")
                        for a, b in layout.refused[:listed]
                    ),
                )
            out = self._dict(segments, miss, layout)
            if len(json.dumps(out)) < SUMMARY_BYTES:
                break
        return out

    def _dict(
        self,
        segments: tuple[SegmentUse, ...],
        miss: MissUse | None,
        layout: LayoutUse | None,
    ) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "cached_by_tier": dict(self.cached_by_tier),
            "computed_tokens": self.computed_tokens,
            "completion_tokens": self.completion_tokens,
            "hit_rate": self.hit_rate,
            "reusable_tokens": self.reusable_tokens,
            "resident_tokens": self.resident_tokens,
            "page_size": self.page_size,
            "ms": dict(self.ms),
            "saved_prefill_ms": self.saved_prefill_ms,
            "segments": [s.to_dict() for s in segments],
            "miss": miss.to_dict() if miss else None,
            "layout": layout.to_dict() if layout else None,
        }


def _tiers(tiers: Mapping[str, int]) -> dict[str, int]:
    return {name: int(tiers.get(name, 0)) for name in ("device", "host", "disk")}
