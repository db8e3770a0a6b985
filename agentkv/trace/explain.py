"""`explain`: two requests, the first token in which they differ, and why.

The same comparison as in a report, for one pair; nothing of a whole log is needed. What no log can
tell (a text that was not recorded) is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.engine.types import IntArray, Reason
from agentkv.engine.why import Earlier, common_prefix
from agentkv.engine.why import compare as engine_compare
from agentkv.trace.caches.base import namespace_of
from agentkv.trace.call import Call, Where
from agentkv.trace.causes.memory import Memory, Past
from agentkv.trace.causes.rules import said
from agentkv.trace.readers import Problems, read
from agentkv.trace.render import Rendered, Renderer
from agentkv.trace.threads import Threads
from agentkv.trace.told import Told, differences, tell

BEFORE = 16
AFTER = 24
"""Tokens that are decoded in front of the first that differs, and from it on."""


class NoSuchRequest(LookupError):
    """What was asked for is not in the log; the message says what is."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why `after` could not reuse all of `before`.

    `token`: the first token of `after` that `before` (and its reply, where that is known) does not
    have there; None when `after` is all in it. `shared`: tokens that both begin with, that may be
    reused: 0 with another model or cache key. `tokens_lost`: of `after`, that `before` held behind
    the change. `context`, `was`, `now`: decoded text around the token; None without text.
    `reason` is None when nothing differs. `changes`: all of them, by place, the first included.
    """

    before: Where
    after: Where
    before_tokens: int
    after_tokens: int
    shared: int
    token: int | None
    segment: str | None
    reason: Reason | None
    rule: str | None
    name: str | None
    context: str | None
    was: str | None
    now: str | None
    was_token: str | None
    now_token: str | None
    tokens_lost: int
    advice: str | None
    detail: str | None
    changes: tuple[Told, ...]
    same_session: bool
    tokenizer: str
    exact: bool

    @property
    def healthy(self) -> bool:
        """Whether all that could be reused was."""
        return self.tokens_lost == 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "before": {"file": self.before.file, "line": self.before.line},
            "after": {"file": self.after.file, "line": self.after.line},
            "before_tokens": self.before_tokens,
            "after_tokens": self.after_tokens,
            "shared_tokens": self.shared,
            "token": self.token,
            "segment": self.segment,
            "reason": self.reason,
            "rule": self.rule,
            "name": self.name,
            "context": self.context,
            "was": self.was,
            "now": self.now,
            "was_token": self.was_token,
            "now_token": self.now_token,
            "tokens_lost": self.tokens_lost,
            "healthy": self.healthy,
            "advice": self.advice,
            "detail": self.detail,
            "changes": [c.to_dict() for c in self.changes],
            "same_session": self.same_session,
            "tokenizer": {"name": self.tokenizer, "exact": self.exact},
        }


def explain(
    before: Call, after: Call, renderer: Renderer, *, same_session: bool | None = None
) -> Explanation:
    """Compare two requests, `before` being the earlier one.

    `same_session`: whether `after` goes on with the conversation of `before`; by default it is
    taken to, unless the log names two sessions.
    """
    if same_session is None:
        same_session = not (
            before.session is not None
            and after.session is not None
            and before.session != after.session
        )
    session = "explained"
    old = Past(0, before, renderer.render(before), namespace_of(before), session)
    new = Past(1, after, renderer.render(after), namespace_of(after), session)
    return _explained(old, new, renderer, same=same_session)


def explain_id(calls: Iterable[Call], request_id: str, renderer: Renderer) -> Explanation:
    """Explain the call of a log that has this id, against the last call of its session before it,
    else against the most alike one. Raises `NoSuchRequest`: no such id, or nothing before it."""
    threads, memory = Threads(), Memory()
    number = 0
    some: list[str] = []
    for number, call in enumerate(calls):
        session = threads.place(call).session
        if call.id != request_id:
            if call.id is not None and len(some) < 5:
                some.append(call.id)
            if call.error is None:
                past = Past(number, call, renderer.render(call), namespace_of(call), session)
                memory.keep(past, alike=True)
            continue
        now = Past(number, call, renderer.render(call), namespace_of(call), session)
        old = memory.previous(session)
        if old is not None:
            return _explained(old, now, renderer, same=True)
        near = memory.nearest(call, now.namespace, session)
        if near is None:
            raise NoSuchRequest(
                f"{request_id} is the first call of its kind: the log has no earlier one to compare "
                "it with."
            )
        return _explained(near, now, renderer, same=False)
    known = f" Ids in it: {', '.join(some)}, ..." if some else " Its calls have no ids."
    raise NoSuchRequest(f"no call of the log has the id {request_id}.{known}")


def load(path: str, *, format: str | None = None) -> Call:
    """The one request of a JSON file; of a log, the one at `FILE:LINE`.

    Raises `NoSuchRequest` when there is none or more than one, `LogError` for a missing file.
    """
    name, line = path, None
    head, colon, tail = path.rpartition(":")
    if colon and tail.isdigit() and not Path(path).exists():
        name, line = head, int(tail)
    problems = Problems()
    found: Call | None = None
    count = 0
    for call in read([name], format=format, problems=problems):
        if line is not None and call.where.line == line:
            return call
        if line is None:
            count += 1
            found = found or call
            if count > 1:
                raise NoSuchRequest(
                    f"{name} holds more than one request: name one by its line, as in {name}:2."
                )
    if line is not None:
        told = next((p.why for p in problems.first if p.line == line), "")
        if line == 0:
            told = "lines count from 1"
        raise NoSuchRequest(f"{name} has no request on line {line}{told and f': {told}'}.")
    if found is None:
        why = f" ({problems.first[0]})" if problems.first else ""
        raise NoSuchRequest(f"{name} holds no request that can be read{why}.")
    return found


def _explained(old: Past, new: Past, renderer: Renderer, *, same: bool) -> Explanation:
    ids, earlier = new.ids, old.full if same else old.ids
    at = common_prefix(ids, earlier)
    per = new.rendered.per_id
    here = _namespace(old.call, new.call)
    matched = 0 if here is not None else at
    changes = _changes(old, new, matched, same=same) if new.call.parts else []
    differs = at < len(ids)
    segment = _segment(new.rendered, at)
    reason: Reason | None = None
    rule: str | None = None
    detail: str | None = None
    if here is not None:
        reason, rule = here
        segment = "model" if reason == "model_changed" else "cache key"
        differs = True
    elif differs:
        reason, rule, detail, segment = _first(old, new, at, changes, same, segment)
    told = said(rule, reason or "") if rule is not None else None
    lost = sum(c.tokens_lost for c in changes)
    if here is not None:
        lost = max(lost, at)
    known = differs and per == 1
    was = _decoded(renderer, earlier, at) if known else (None, None)
    now = _decoded(renderer, ids, at) if known else (None, None)
    context = renderer.encoder.decode(ids[max(0, at - BEFORE) : at]) if known else None
    if reason == "model_changed":
        context, was, now = None, (old.call.model, None), (new.call.model, None)
    elif reason == "other_namespace":
        context, was, now = None, (old.call.salt, None), (new.call.salt, None)
    return Explanation(
        before=old.call.where,
        after=new.call.where,
        before_tokens=old.rendered.tokens,
        after_tokens=new.rendered.tokens,
        shared=matched * per,
        token=(0 if here is not None else at * per) if differs else None,
        segment=segment if differs else None,
        reason=reason,
        rule=rule,
        name=told.name if told is not None else None,
        context=context,
        was=was[0],
        now=now[0],
        was_token=was[1],
        now_token=now[1],
        tokens_lost=lost,
        advice=told.advice if told is not None else None,
        detail=detail,
        changes=tuple(changes),
        same_session=same,
        tokenizer=renderer.name,
        exact=renderer.exact,
    )


def _namespace(old: Call, new: Call) -> tuple[Reason, str] | None:
    """Reason and rule where two calls cannot share anything, whatever their text."""
    if old.model != new.model:
        return "model_changed", "KV507"
    if old.salt != new.salt:
        return "other_namespace", "KV707"
    return None


def _changes(old: Past, new: Past, matched: int, *, same: bool) -> list[Told]:
    found = differences(new, old, same=same)
    # A value begins where the whole of it does: `10:16` after `10:15` in front of the digits that
    # differ. Of one pair of calls, the match has overcome none of the changes.
    first = min((c.at for c in found.changes), default=matched)
    return tell(found, min(matched, first), len(new.ids), same=same)


def _first(
    old: Past, new: Past, at: int, changes: list[Told], same: bool, segment: str | None
) -> tuple[Reason, str | None, str | None, str | None]:
    """Reason, rule, detail and segment of the first token that differs."""
    grown = same and at >= len(old.ids)
    first = changes[0] if changes else None
    if first is not None and not (grown and not first.tokens_lost):
        return first.reason, first.rule, first.detail, first.segment
    if grown:
        return "appended", None, None, segment
    if not new.call.parts:
        return "unknown", None, "the log holds no text, only where the prompts part", segment
    seen = engine_compare(
        new.rendered.prompt, Earlier(old.ids, old.rendered.prompt.spans, old.full), named=same
    )
    return seen.reason, None, seen.detail, segment


def _segment(rendered: Rendered, at: int) -> str | None:
    spans = rendered.prompt.spans
    found = next((s.name for s in spans if s.start <= at < s.end), None)
    return found or (spans[-1].name if spans else None)


def _decoded(renderer: Renderer, ids: IntArray, at: int) -> tuple[str | None, str | None]:
    """Text from a token on, and that token's own."""
    decode = renderer.encoder.decode
    return decode(ids[at : at + AFTER]), decode(ids[at : at + 1])
