"""`analyse`: a log as a `TraceReport`, in one pass over it, and two more for the rate if mended.

Memory does not grow with the log: what is compared with is bounded (see `causes.memory`), the
unlimited cache holds 16 million ids at most and says so when it had to forget, sessions and
prefixes are counted up to a limit.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agentkv.trace.caches.base import CacheModel, namespace_of
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.caches.radix import UNLIMITED, RadixCache
from agentkv.trace.call import Call, Where
from agentkv.trace.causes.finder import Finder
from agentkv.trace.causes.rules import EVICTED
from agentkv.trace.fixes import fix_calls
from agentkv.trace.prefixes import Prefixes
from agentkv.trace.readers.problems import Problems
from agentkv.trace.render import Renderer
from agentkv.trace.replay import Replay, Tally
from agentkv.trace.report import (
    CauseRow,
    Example,
    Measured,
    Rates,
    SessionRow,
    TraceReport,
)
from agentkv.trace.threads import Threads
from agentkv.trace.timeline import Timeline

SESSIONS = 20_000
SHOWN_SESSIONS = 50
ALONE = 4_000_000
"""Ids that are held to tell what sessions reuse of their own: it is used soon or never."""

MANY, CHANCE = 10, 0.02
"""A loss of a single call is told in a log of fewer calls, or when it is this share of all tokens;
of one call in a hundred when it is a twentieth of that, of more a hundredth."""

TWO_FORMS = ("KV310", "KV311", "KV312", "KV501", "KV504", "KV507", "KV707")
"""A text that is written in two forms is lost once only, and all the same no chance."""

Calls = Callable[[], Iterable[Call]]


@dataclass(slots=True)
class _Session:
    named: bool
    first: int
    requests: int = 0
    prompt: int = 0
    cached: int = 0
    lost: int = 0


def analyse(
    calls: Calls | Iterable[Call],
    *,
    renderer: Renderer | None = None,
    cache: Callable[[], CacheModel] = cache_model,
    problems: Problems | None = None,
    fixed: bool = True,
) -> TraceReport:
    """What a log reused, what it lost, and to what.

    `calls()` reads the log anew each time it is called; with an iterable (a stream that can be read
    once), or with `fixed=False`, the rate if mended is not computed. `cache()` makes the cache model
    of `now` and `fixed` (None for a log of hashes alone); the ceiling is always an unlimited one. `problems`: the account of the
    reader, which is filled while the calls are read.
    """
    renderer = renderer or Renderer()
    again: Calls | None = None
    if callable(calls):
        again = calls
        stream: Iterable[Call] = calls()
    else:
        stream = calls
    one = _Pass(renderer, cache())
    for call in stream:
        one.call(call)
    if problems is not None:
        # Later passes would count the same lines again.
        problems = replace(
            problems,
            counts=Counter(problems.counts),
            first=list(problems.first),
            formats=Counter(problems.formats),
        )
    one.release()
    rows = one.causes()
    names = [row.fix for row in rows if row.fix is not None]
    mended: Tally | None = None
    # Of hashes no cause can be known, so neither can a rate without them.
    if fixed and again is not None and one.texts:
        mended = one.replay.total
        if names:
            second = Replay(cache())
            for call in fix_calls(again, list(dict.fromkeys(names))):
                second.call(call, renderer.render(call))
            mended = second.total
    return one.report(rows, mended, problems)


class _Pass:
    """What is counted while the log goes by."""

    def __init__(self, renderer: Renderer, cache: CacheModel) -> None:
        self.renderer = renderer
        self.replay = Replay(cache)
        ideal = isinstance(cache, RadixCache) and cache.ideal
        self._free = None if ideal else RadixCache("agentkv")
        """The unlimited cache of the ceiling, where it is not the one that is replayed."""
        self._alone = RadixCache("agentkv", held_ids=ALONE)
        self._limited = isinstance(cache, RadixCache) and cache.size is not None
        self._finder = Finder()
        self._threads = Threads()
        self._timeline = Timeline()
        self._prefixes = Prefixes()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._models: Counter[str] = Counter()
        self._formats: Counter[str] = Counter()
        self._measured = [0, 0, 0, 0]
        self._failed = self._requests = self._hashed = self._within = 0
        self._ideal = 0
        self._ideal_by_request = 0.0
        self._busy_until = 0.0
        self._early = 0
        self._evicted = 0
        self._evicted_calls = 0
        self._evicted_first: Example | None = None
        self._evicted_worst: Example | None = None

    def call(self, call: Call) -> None:
        if call.error is not None:
            self._failed += 1
            return
        rendered = self.renderer.render(call)
        if call.time is not None:
            self._early += call.time < self._busy_until
            self._busy_until = max(self._busy_until, call.time + (call.ttft_ms or 0.0) / 1000)
        place = self._threads.place(call)
        namespace = namespace_of(call)
        n = rendered.tokens
        hit = self.replay.call(call, rendered)
        free = hit if self._free is None else self._free.call(call, rendered, namespace)
        own = self._alone.call(call, rendered, (*namespace, ("session", place.session)))
        self._within += min(hit.cached, own.cached)
        reasons: dict[str, float] = {}
        lost = 0
        if call.parts:
            loss = self._finder.call(
                call, rendered, session=place.thread, namespace=namespace, matched=free.cached
            )
            lost, reasons = loss.tokens, {str(k): v for k, v in loss.by_reason.items()}
        else:
            self._hashed += 1
        if self._limited and free.cached - hit.cached >= 8:
            self._evict(call, place.session, hit.cached, free.cached - hit.cached)
            reasons["evicted"] = free.cached - hit.cached
        self._ideal += min(n, free.cached + lost)
        self._ideal_by_request += min(n, free.cached + lost) / n if n else 0.0
        self._count(call, place.session, place.named, n, hit.cached, lost)
        self._timeline.add(
            tokens=n,
            cached=hit.cached,
            time=call.time,
            measured=call.usage.cached,
            reasons=reasons,
        )
        self._prefixes.add(call, rendered, hit.cached)
        self._requests += 1

    @property
    def texts(self) -> int:
        """Calls of which causes can be known."""
        return self._requests - self._hashed

    def release(self) -> None:
        """The log is read: the caches may go before it is read again."""
        for cache in (self._free, self._alone, self.replay.cache):
            if isinstance(cache, RadixCache):
                cache.release()

    def causes(self) -> tuple[CauseRow, ...]:
        rows = [r for r in self._finder.ledger.rows() if not self._by_chance(r)]
        total = sum(r.tokens_lost for r in rows)
        rows = [replace(r, share=r.tokens_lost / total) for r in rows]
        if self._evicted_first is not None and self._evicted_worst is not None:
            rows.append(
                CauseRow(
                    reason="evicted",
                    rule=None,
                    name=EVICTED.name,
                    segment="prompt",
                    count=self._evicted_calls,
                    tokens_lost=self._evicted,
                    share=0.0,
                    first=self._evicted_first,
                    worst=self._evicted_worst,
                    advice=EVICTED.advice,
                )
            )
            total = sum(r.tokens_lost for r in rows)
            rows = [replace(r, share=r.tokens_lost / total) for r in rows]
            rows.sort(key=lambda r: (-r.tokens_lost, r.first.request))
        return tuple(rows)

    def _by_chance(self, row: CauseRow) -> bool:
        """What few calls of many lost, and little of it: prompts that happen to share a text."""
        if row.rule in TWO_FORMS:
            return False
        share = row.tokens_lost / max(self.replay.total.prompt, 1)
        if row.count == 1:
            return self._requests >= MANY and share < CHANCE
        return share < CHANCE / 20 and (row.count <= self._requests // 100 or share < CHANCE / 100)

    def report(
        self, rows: tuple[CauseRow, ...], mended: Tally | None, problems: Problems | None
    ) -> TraceReport:
        total = self.replay.total
        prompt = total.prompt
        ceiling = self._ideal / prompt if prompt else 0.0
        by_request = self._ideal_by_request / total.requests if total.requests else 0.0
        rates = Rates(
            now=total.rate,
            fixed=None if mended is None else self._fixed(mended, ceiling),
            ceiling=max(ceiling, total.rate),
            within=self._within / prompt if prompt else 0.0,
            across=total.rate - (self._within / prompt if prompt else 0.0),
            requests_now=total.request_rate,
            requests_fixed=None
            if mended is None
            else min(
                max(mended.request_rate, total.request_rate), max(by_request, total.request_rate)
            ),
            requests_ceiling=max(by_request, total.request_rate),
        )
        return TraceReport(
            requests=self._requests,
            sessions=self._threads.count,
            prompt_tokens=prompt,
            rates=rates,
            causes=rows,
            tokenizer=self.renderer.name,
            exact=self.renderer.exact,
            cache=self.replay.cache.name,
            measured=Measured(*self._measured),
            timeline=self._timeline.buckets(),
            by_session=self._rows(),
            tree=self._prefixes.tree(),
            failed=self._failed,
            first_calls=self._finder.first_calls,
            appended=self._finder.appended,
            evicted_tokens=self._evicted,
            problems={} if problems is None else dict(problems.counts),
            problem_lines=() if problems is None else [str(p) for p in problems.first],
            notes=self._notes(),
            models=dict(self._models.most_common(50)),
            formats=dict(self._formats if problems is None else problems.formats),
        )

    def _fixed(self, mended: Tally, ceiling: float) -> float:
        """The share of the log's own tokens that need not be computed once it is mended. Mended
        prompts may be longer than the log's (an append-only history), so theirs is not the measure."""
        total = self.replay.total
        if not total.prompt:
            return 0.0
        rate = 1 - (mended.prompt - mended.cached) / total.prompt
        return min(max(rate, total.rate), max(ceiling, total.rate))

    def _evict(self, call: Call, session: str, at: int, tokens: int) -> None:
        self._evicted += tokens
        self._evicted_calls += 1
        if self._evicted_worst is not None and tokens <= self._evicted_worst.tokens_lost:
            return
        example = Example(
            where=Where(call.where.file, call.where.line),
            request=self._requests,
            session=session,
            tokens_lost=tokens,
            at=at,
            segment="prompt",
            time=call.time,
        )
        self._evicted_first = self._evicted_first or example
        self._evicted_worst = example

    def _count(
        self, call: Call, session: str, named: bool, prompt: int, cached: int, lost: int
    ) -> None:
        row = self._sessions.get(session)
        if row is None:
            if len(self._sessions) >= SESSIONS:
                self._sessions.popitem(last=False)
            row = self._sessions[session] = _Session(named, self._requests)
        row.requests += 1
        row.prompt += prompt
        row.cached += cached
        row.lost += lost
        self._models[call.model or "(not named)"] += 1
        self._formats[call.provider] += 1
        usage = call.usage
        if usage.cached is not None and usage.prompt is not None:
            self._measured[0] += 1
            self._measured[1] += usage.prompt
            self._measured[2] += usage.cached
            self._measured[3] += usage.written or 0

    def _rows(self) -> tuple[SessionRow, ...]:
        order = sorted(self._sessions.items(), key=lambda i: (-i[1].lost, -i[1].prompt))
        return tuple(
            SessionRow(name, s.named, s.requests, s.prompt, s.cached, s.lost, s.first)
            for name, s in order[:SHOWN_SESSIONS]
        )

    def _notes(self) -> list[str]:
        notes: list[str] = []
        if not self.renderer.exact and self._requests > self._hashed:
            notes.append(
                "Tokens are an estimate; give the model's tokenizer (--tokenizer) for exact ones."
            )
        if self._hashed:
            notes.append(
                f"{self._hashed:,} calls are hashes of blocks: their rates are exact, and nothing "
                "can be said of causes."
            )
        if self._requests > 1:
            early = (
                f" ({self._early:,} calls began before an earlier one had its first token)"
                if self._early
                else ""
            )
            notes.append(
                "Calls are replayed one after the other; one that really began before another had "
                f"ended could not reuse it yet{early}, so the rates are upper bounds."
            )
        if self.replay.cache.capped or (self._free is not None and self._free.capped):
            notes.append(
                f"The unlimited cache reached {UNLIMITED:,} tokens and had to forget the oldest; "
                "ceilings are a little too low."
            )
        if self.renderer.template_failures:
            notes.append(
                f"The chat template refused {self.renderer.template_failures:,} calls; they were "
                "rendered without it."
            )
        return notes
