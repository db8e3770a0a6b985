"""`show`: one session of a log, call by call: what each was served, what it lost, and to what.

The whole log is replayed, since a call may be served what another session left there; only the
calls of one session are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.engine.types import Reason, Span
from agentkv.trace.caches.base import CacheModel, namespace_of
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.call import Call, Part, Where
from agentkv.trace.causes.change import Change
from agentkv.trace.causes.finder import Finder
from agentkv.trace.causes.ledger import Ledger
from agentkv.trace.causes.memory import Past
from agentkv.trace.render import Rendered, Renderer
from agentkv.trace.replay import Replay
from agentkv.trace.threads import Threads
from agentkv.trace.told import Told, told

SAID = 160
"""Characters of what was said that are kept."""
SESSIONS = 100_000
LISTED = 20
MOST = 10_000
"""Calls of one session that are kept."""


class NoSuchSession(LookupError):
    """The session is not in the log; the message names some that are."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a prompt: `tokens`, of which the first `cached` were served."""

    name: str
    kind: str
    tokens: int
    cached: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "tokens": self.tokens,
            "cached": self.cached,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One call. `request`: its number in the log, from 0. `cached`: tokens that the replay served;
    `measured`: what the provider reported, None where it did not. `lost`: to `changes`; `evicted`:
    what the cache once had. `said`: the beginning of the last message. `reason`: None when all was
    reused. A call with an `error` was not replayed."""

    request: int
    where: Where
    id: str | None
    time: float | None
    model: str
    prompt_tokens: int
    cached: int
    measured: int | None
    lost: int
    evicted: int
    reason: Reason | None
    changes: tuple[Told, ...]
    segments: tuple[Segment, ...]
    role: str
    said: str
    compared_with: Where | None
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        other = self.compared_with
        return {
            "request": self.request,
            "file": self.where.file,
            "line": self.where.line,
            "id": self.id,
            "time": self.time,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached,
            "measured_cached_tokens": self.measured,
            "tokens_lost": self.lost,
            "evicted_tokens": self.evicted,
            "reason": self.reason,
            "changes": [c.to_dict() for c in self.changes],
            "segments": [s.to_dict() for s in self.segments],
            "role": self.role,
            "said": self.said,
            "compared_with": None if other is None else {"file": other.file, "line": other.line},
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Other:
    """Another session of the log."""

    session: str
    requests: int
    lost: int

    def to_dict(self) -> dict[str, Any]:
        return {"session": self.session, "requests": self.requests, "tokens_lost": self.lost}


@dataclass(frozen=True, slots=True)
class Session:
    """`named`: whether the log names it, or it was inferred. `others`: at most 20, by what they
    lost. `left_out`: calls of the session beyond the first 10,000."""

    session: str
    named: bool
    steps: tuple[Step, ...]
    others: tuple[Other, ...]
    sessions: int
    cache: str
    tokenizer: str
    exact: bool
    left_out: int = 0

    @property
    def prompt_tokens(self) -> int:
        return sum(s.prompt_tokens for s in self.steps)

    @property
    def cached(self) -> int:
        return sum(s.cached for s in self.steps)

    @property
    def lost(self) -> int:
        return sum(s.lost for s in self.steps)

    def to_dict(self) -> dict[str, Any]:
        rate = self.cached / self.prompt_tokens if self.prompt_tokens else None
        return {
            "schema": 1,
            "session": self.session,
            "named": self.named,
            "requests": len(self.steps) + self.left_out,
            "left_out": self.left_out,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached,
            "hit_rate": rate,
            "tokens_lost": self.lost,
            "cache": self.cache,
            "tokenizer": {"name": self.tokenizer, "exact": self.exact},
            "steps": [s.to_dict() for s in self.steps],
            "sessions": self.sessions,
            "others": [o.to_dict() for o in self.others],
        }


def show(
    calls: Callable[[], Iterable[Call]],
    renderer: Renderer,
    cache: Callable[[], CacheModel] = cache_model,
    *,
    session: str | None = None,
) -> Session:
    """One session of a log. Without a name it is the one that lost most, and `calls()`, which
    starts the log anew, is called twice.

    Raises `NoSuchSession`; the log may also have no calls at all.
    """
    if session is None:
        session = _Pass(renderer, cache(), None).run(calls()).worst()
    seen = _Pass(renderer, cache(), session).run(calls())
    if not seen.kept:
        raise NoSuchSession(_unknown(session, list(seen.requests)))
    return seen.result()


@dataclass(slots=True)
class _Kept:
    """A call of the session, before all of the log has been seen."""

    step: dict[str, Any]
    changes: Sequence[Change]
    shares: Mapping[int, float]
    behind: Mapping[int, str]


class _Watched(Ledger):
    """A ledger that lets one see what was booked last."""

    def __init__(self) -> None:
        super().__init__()
        self.last: tuple[Sequence[Change], Mapping[int, float], Mapping[int, str]] | None = None

    def book(
        self,
        past: Past,
        other: Past,
        changes: Sequence[Change],
        shares: Mapping[int, float],
        behind: Mapping[int, str],
        *,
        same: bool,
    ) -> tuple[float, dict[Reason, float]]:
        self.last = (changes, shares, behind)
        return Ledger.book(self, past, other, changes, shares, behind, same=same)


@dataclass
class _Pass:
    """One reading of the log. `wanted`: the session whose calls are kept; None: no call is."""

    renderer: Renderer
    cache: CacheModel
    wanted: str | None
    kept: list[_Kept] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    named: bool = False
    ledger: _Watched = field(default_factory=_Watched)

    def run(self, calls: Iterable[Call]) -> _Pass:
        finder, threads = Finder(), Threads()
        finder.ledger = self.ledger
        replay, free = Replay(self.cache), cache_model("agentkv")
        for number, call in enumerate(calls):
            place = threads.place(call)
            name = place.session
            known = name in self.requests or len(self.requests) < SESSIONS
            self.requests[name] += known
            if call.error is not None:
                if name == self.wanted:
                    self._keep(number, call, None)
                continue
            rendered = self.renderer.render(call)
            hit = replay.call(call, rendered)
            namespace = namespace_of(call)
            matched = free.call(call, rendered, namespace).cached // rendered.per_id
            self.ledger.last = None
            loss = finder.call(call, rendered, session=name, namespace=namespace, matched=matched)
            tokens = loss.tokens * rendered.per_id
            self.lost[name] += tokens if known else 0
            if name != self.wanted:
                continue
            self.named = place.named
            other = loss.compared_with
            self._keep(
                number,
                call,
                rendered,
                cached=hit.cached,
                lost=tokens,
                evicted=max(0, hit.known - hit.cached),
                reason=loss.reason,
                compared_with=other.call.where if other is not None else None,
            )
        return self

    def _keep(self, number: int, call: Call, rendered: Rendered | None, **seen: Any) -> None:
        if len(self.kept) >= MOST:
            return
        role, text = _said(call.parts)
        step = {
            "request": number,
            "where": call.where,
            "id": call.id,
            "time": call.time,
            "model": call.model,
            "prompt_tokens": rendered.tokens if rendered is not None else 0,
            "cached": 0,
            "measured": call.usage.cached,
            "lost": 0,
            "evicted": 0,
            "reason": None,
            "segments": _segments(rendered, seen["cached"]) if rendered is not None else (),
            "role": role,
            "said": text,
            "compared_with": None,
            "error": call.error,
            **seen,
        }
        booked = self.ledger.last if seen.get("lost") else None
        self.kept.append(_Kept(step, *(booked or ((), {}, {}))))

    def worst(self) -> str:
        """The session that lost most; of several, the one with most calls."""
        if not self.requests:
            raise NoSuchSession("the log has no calls.")
        return max(self.requests, key=lambda s: (self.lost[s], self.requests[s]))

    def result(self) -> Session:
        assert self.wanted is not None
        steps = tuple(
            Step(
                changes=tuple(
                    told(k.changes[i], lost, k.behind.get(i, ""), self.ledger.slots)
                    for i, lost in sorted(k.shares.items())
                ),
                **k.step,
            )
            for k in self.kept
        )
        order = sorted(self.requests, key=lambda s: (-self.lost[s], -self.requests[s]))
        others = [Other(s, self.requests[s], self.lost[s]) for s in order if s != self.wanted]
        return Session(
            session=self.wanted,
            named=self.named,
            steps=steps,
            others=tuple(others[:LISTED]),
            sessions=len(self.requests),
            cache=self.cache.name,
            tokenizer=self.renderer.name,
            exact=self.renderer.exact,
            left_out=max(0, self.requests[self.wanted] - len(steps)),
        )


def _said(parts: Sequence[Part]) -> tuple[str, str]:
    """Role and first words of the last message."""
    for part in reversed(parts):
        if part.role is not None and any(p.text for p in part.pieces):
            text = " ".join(p.text[: 2 * SAID] for p in part.pieces if p.kind != "image")
            return part.role, " ".join(text.split())[:SAID]
    return (parts[-1].role or "" if parts else ""), ""


def _segments(rendered: Rendered, cached: int) -> tuple[Segment, ...]:
    """The prompt's parts; `cached` tokens from its beginning were served."""
    per = rendered.per_id
    spans: Sequence[Span] = rendered.prompt.spans
    return tuple(
        Segment(
            s.name,
            s.kind,
            (s.end - s.start) * per,
            max(0, min(s.end * per, cached) - s.start * per),
        )
        for s in spans
    )


def _unknown(session: str, known: Sequence[str]) -> str:
    if not known:
        return "the log has no calls."
    some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    return f"no session of the log is called {session}; there are: {some}"
