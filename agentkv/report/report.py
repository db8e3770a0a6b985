"""`CacheReport`: what one call reused, what it computed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from agentkv.engine.types import RequestOutput, load_block
from agentkv.layout.arrangement import Arrangement
from agentkv.report import counts, view
from agentkv.report.advice import advise
from agentkv.report.counts import Counts
from agentkv.report.parts import LayoutUse, MissUse, SegmentUse
from agentkv.report.summary import summary

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = 1
KEY = "agentkv"

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
    cached_known: bool = True
    """False where the server did not say what it reused; `cached_tokens` is 0 then, and is null in
    `to_dict()`: unknown is not nothing."""
    estimated: bool = False
    """Whether the split into segments was made here, from a server's totals."""
    load: Mapping[str, float] | None = None
    """What lower tiers had of the prompt: `tokens`, `loaded` of them, and the milliseconds expected
    to bring them back (`load_ms`) and to compute them (`compute_ms`). None when they had nothing."""
    written_tokens: int | None = None
    """What the server says it added to its cache, where it says so."""

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that had to be computed; at least 1."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_rate(self) -> float:
        """Share of the prompt that was read from memory, to three digits. 0 where it is unknown;
        see `cached_known`."""
        return round(self.cached_tokens / self.prompt_tokens, 3) if self.prompt_tokens else 0.0

    @property
    def reason(self) -> str | None:
        """Why reuse ended where it did; None when nothing was missed."""
        return self.miss.reason if self.miss else None

    @property
    def created_tokens(self) -> int:
        """Prompt tokens that this call added to the cache: whole pages only."""
        if self.written_tokens is not None:
            return self.written_tokens
        if not self.cached_known:
            return 0
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
            load=load_block(cache.load),
            segments=tuple(segments),
            miss=MissUse.from_miss(cache.miss) if cache.miss else None,
        )

    @classmethod
    def from_usage(cls, usage: Mapping[str, Any]) -> CacheReport:
        """The report in the `usage` of an HTTP reply.

        Reads what `agentkv serve` writes (`usage.agentkv`), and from other servers the counts in
        any shape that `agentkv.report.counts` knows. What a server does not say is not made up:
        `cached_known` is False without a count.
        """
        report = cls.from_counts(counts.from_server(usage))
        facts = usage.get(KEY)
        if not isinstance(facts, Mapping):
            return report
        cached = report.cached_tokens
        miss = facts.get("miss")
        return replace(
            report,
            cached_by_tier=_tiers(facts.get("cached_by_tier") or {"device": cached}),
            reusable_tokens=int(facts.get("reusable_tokens", cached)),
            resident_tokens=int(facts.get("resident_tokens", cached)),
            page_size=int(facts.get("page_size") or 1),
            ms={k: float(v) for k, v in (facts.get("ms") or {}).items()},
            saved_prefill_ms=float(facts.get("saved_prefill_ms") or 0.0),
            load=facts.get("load"),
            segments=tuple(SegmentUse.from_dict(s) for s in facts.get("segments") or ()),
            miss=MissUse.from_dict(miss) if miss else None,
            # Ours are of pages, so they are computed here as they are in process.
            written_tokens=None,
        )

    @classmethod
    def from_counts(cls, found: Counts) -> CacheReport:
        """A report of counts alone, as other providers have them."""
        cached = found.cached or 0
        return cls(
            prompt_tokens=found.prompt,
            cached_tokens=cached,
            completion_tokens=found.completion,
            cached_by_tier=_tiers({"device": cached}),
            reusable_tokens=cached,
            resident_tokens=cached,
            cached_known=found.cached is not None,
            written_tokens=found.written,
        )

    @classmethod
    def from_usage_metadata(cls, usage: Mapping[str, Any]) -> CacheReport:
        """A report of the counts in a LangChain `usage_metadata`, of any model."""
        return cls.from_counts(counts.from_langchain(usage))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CacheReport:
        """The inverse of `to_dict("full")`. Raises ValueError for a schema that is newer."""
        schema = int(data.get("schema", SCHEMA))
        if schema > SCHEMA:
            raise ValueError(f"the report has schema {schema}; this version reads {SCHEMA}.")
        miss, layout = data.get("miss"), data.get("layout")
        return cls(
            prompt_tokens=int(data.get("prompt_tokens", 0)),
            cached_tokens=int(data.get("cached_tokens") or 0),
            completion_tokens=int(data.get("completion_tokens", 0)),
            cached_by_tier=_tiers(data.get("cached_by_tier") or {}),
            reusable_tokens=int(data.get("reusable_tokens", 0)),
            resident_tokens=int(data.get("resident_tokens", 0)),
            page_size=int(data.get("page_size", 1)),
            ms={k: float(v) for k, v in (data.get("ms") or {}).items()},
            saved_prefill_ms=float(data.get("saved_prefill_ms", 0.0)),
            load=data.get("load"),
            segments=tuple(SegmentUse.from_dict(s) for s in data.get("segments") or ()),
            miss=MissUse.from_dict(miss) if miss else None,
            layout=LayoutUse.from_dict(layout) if layout else None,
            cached_known=bool(data.get("cached_known", data.get("cached_tokens", 0) is not None)),
            estimated=bool(data.get("estimated", False)),
            written_tokens=data.get("written_tokens"),
        )

    @classmethod
    def from_message(cls, message: Any) -> CacheReport | None:
        """The report of a LangChain message, chunk or generation, or of a dict of one (a saved
        message, `model_dump()`, `response_metadata`, `generation_info`, a report itself).

        An answer of another model has counts only, out of its `usage_metadata`. None where nothing
        is said.
        """
        if message is None:
            return None
        for name in ("response_metadata", "generation_info"):
            holder = _get(message, name)
            if isinstance(holder, Mapping) and isinstance(holder.get(KEY), Mapping):
                return cls.from_dict(holder[KEY])
        if isinstance(message, Mapping):
            if isinstance(message.get(KEY), Mapping):
                return cls.from_dict(message[KEY])
            if "schema" in message and "prompt_tokens" in message:
                return cls.from_dict(message)
        usage = _get(message, "usage_metadata")
        if isinstance(usage, Mapping) and "input_tokens" in usage:
            return cls.from_usage_metadata(usage)
        for name in ("message", "kwargs", "data"):
            inner = _get(message, name)
            if inner is not None:
                found = cls.from_message(inner)
                if found is not None:
                    return found
        return None

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
        if detail == "summary":
            return summary(self)
        more: dict[str, Any] = {} if self.cached_known else {"cached_known": False}
        if self.estimated:
            more["estimated"] = True
        if self.written_tokens is not None:
            more["written_tokens"] = self.written_tokens
        known = self.cached_known
        return {
            "schema": SCHEMA,
            **more,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens if known else None,
            "cached_by_tier": dict(self.cached_by_tier),
            "computed_tokens": self.computed_tokens if known else None,
            "completion_tokens": self.completion_tokens,
            "hit_rate": self.hit_rate if known else None,
            "reusable_tokens": self.reusable_tokens,
            "resident_tokens": self.resident_tokens,
            "page_size": self.page_size,
            "ms": dict(self.ms),
            "saved_prefill_ms": self.saved_prefill_ms,
            **({"load": dict(self.load)} if self.load is not None else {}),
            "segments": [s.to_dict() for s in self.segments],
            "miss": self.miss.to_dict() if self.miss else None,
            "layout": self.layout.to_dict() if self.layout else None,
        }

    def __str__(self) -> str:
        ended = view.ended(self)
        return f"{view.headline(self)}; {ended}" if ended else view.headline(self)

    def __rich__(self) -> RenderableType:
        return view.rich_view(self)

    def _repr_html_(self) -> str:
        return view.html_view(self)


def _get(holder: Any, name: str) -> Any:
    """A field of a message, or of the dict that one was saved as."""
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _tiers(tiers: Mapping[str, int]) -> dict[str, int]:
    return {name: int(tiers.get(name, 0)) for name in ("device", "host", "disk")}
