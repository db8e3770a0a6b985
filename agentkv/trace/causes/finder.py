"""For each call: what it could have reused and did not, and to which changes that was lost.

A call is compared with the last one of its session, a first call with the most alike one of another
session. Tokens behind the matched prefix that the other prompt held too are lost; each stretch of
them is shared by the changes in front of it in equal parts (all of them must be mended before it
can be reused, so each has the same Shapley value), and nothing is counted twice. New text is never
a loss, and a change with nothing behind it that could be reused costs nothing and is not reported.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from agentkv.engine.types import Reason
from agentkv.engine.why import common_prefix
from agentkv.trace.call import Call
from agentkv.trace.causes import cues
from agentkv.trace.causes.change import Change, Comparison, Run, slot_key
from agentkv.trace.causes.compare import compare
from agentkv.trace.causes.ledger import Ledger
from agentkv.trace.causes.memory import Memory, Past
from agentkv.trace.causes.standing import Standing
from agentkv.trace.causes.template import by_template
from agentkv.trace.causes.units import Unit, answer_units, units
from agentkv.trace.render import Rendered

LEAST_CLOSING = 32
"""Tokens that must have stayed behind a change in the last turn before it is called a loss: a
question is there to change, and words like `Answer:` behind it cost nothing."""
LEAST_OPEN = 24
"""The same for one stretch: documents of one kind have whole phrases in common."""
MOST = 0.5
"""Share of a turn that must have stayed for it to be one text with a hole; of less, only what is
there in other calls too is part of the prompt (see `standing`)."""
LEAST_RUN = 4
LEAST_CALL = 8
ALIKE = 0.5
"""Share of the tools or of the instructions that two sessions must have in common to be compared."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one call. `reason`: None when all was reused. `tokens`: lost to changes; `by_reason` of
    those. `reusable`: how much could have been reused, the matched prefix included."""

    reason: Reason | None
    tokens: int = 0
    by_reason: dict[Reason, float] = field(default_factory=dict)
    compared_with: Past | None = None


class Finder:
    """Feed it the calls of a log in order; `ledger` holds what was found."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.ledger = Ledger()
        self.first_calls = 0
        self.appended = 0
        self._standing = Standing()
        self._request = 0

    def call(
        self,
        call: Call,
        rendered: Rendered,
        *,
        session: str,
        namespace: tuple[Hashable, ...],
        matched: int,
    ) -> Loss:
        """Judge one call. `matched`: tokens of its prompt that some earlier prompt of its namespace
        begins with (an unlimited cache)."""
        past = Past(self._request, call, rendered, namespace, session)
        self._request += 1
        previous = self.memory.previous(session)
        self.ledger.seen(call, session, again=previous is not None)
        loss, grown = self._judge(past, previous, matched)
        self.first_calls += loss.reason == "first_call"
        self.appended += loss.reason == "appended"
        self.memory.keep(past, alike=not grown)
        return loss

    def _judge(self, past: Past, previous: Past | None, matched: int) -> tuple[Loss, bool]:
        """The loss, and whether the call only continued its session's last one."""
        n = len(past.ids)
        if previous is None:
            near = None
            if matched < n - 1:
                near = self.memory.nearest(past.call, past.namespace, past.session)
            loss = self._against(past, near, matched, same=False) if near is not None else None
            if loss is not None:
                return loss, False
            return Loss(None if matched >= n - 1 else "first_call"), False
        same_space = previous.namespace == past.namespace
        shared = common_prefix(past.ids, previous.full)
        if same_space and shared >= len(previous.ids):
            loss = None
            if shared < min(len(previous.full), n) and _may_strip(previous.call):
                loss = self._against(past, previous, matched, same=True, answer_only=True)
            return loss or Loss(None if matched >= n - 1 else "appended"), True
        if matched >= n - 1:
            return Loss(None), False
        if same_space and (changed := by_template(past, previous, shared)) is not None:
            if not changed.changes:
                return Loss("appended"), True
            loss = self._book(past, previous, changed, matched, same=True)
            return loss or Loss("appended"), True
        loss = self._against(past, previous, matched, same=True)
        if loss is None and not _continues(past, previous):
            # One name for calls that have nothing to do with each other.
            near = self.memory.nearest(past.call, past.namespace, None)
            if near is not None and near is not previous:
                loss = self._against(past, near, matched, same=False)
        if loss is not None:
            return loss, False
        return Loss("appended" if _continues(past, previous) else "first_call"), False

    def _against(
        self, past: Past, other: Past, matched: int, *, same: bool, answer_only: bool = False
    ) -> Loss | None:
        new = units(past.call, past.rendered)
        old = units(other.call, other.rendered)
        if same:
            old += answer_units(other.call, other.rendered)
        found = compare(old, new, same_session=same)
        if not same and not _alike(new, found.runs):
            return None
        if answer_only:
            found = Comparison(
                tuple(c for c in found.changes if c.rule in ("KV406", "KV407")), found.runs
            )
        changes = list(found.changes)
        if past.namespace != other.namespace:
            changes.insert(0, _other_namespace(past, other))
        return self._book(past, other, Comparison(tuple(changes), found.runs), matched, same=same)

    def _book(
        self, past: Past, other: Past, found: Comparison, matched: int, *, same: bool
    ) -> Loss | None:
        shares, behind = share(found, matched, len(past.ids), same=same, standing=self._standing)
        if sum(shares.values()) < LEAST_CALL:
            return None
        tokens, by_reason = self.ledger.book(past, other, found.changes, shares, behind, same=same)
        worst = max(by_reason, key=lambda r: by_reason[r])
        return Loss(worst, round(tokens), dict(by_reason), other)


def share(
    found: Comparison, matched: int, n: int, *, same: bool, standing: Standing | None = None
) -> tuple[dict[int, float], dict[int, str]]:
    """Tokens lost to each change (by its index), so that they sum to what was lost; and some of
    the text that stayed behind it. `standing`: what stayed in earlier calls of the log, to which
    this one is added; without it, whatever stayed is taken to be part of the prompt."""
    changes = found.changes
    taken: list[tuple[Run, int, list[int]]] = []
    for run in found.runs:
        start, end = max(run.start, matched), min(run.end, n - 1)
        if end - start < LEAST_RUN:
            continue
        front = [i for i, c in enumerate(changes) if c.at <= run.start]
        # Changes that the match already overcame (some other call had that very value) are not to
        # blame, as long as there are later ones.
        blockers = [i for i in front if not changes[i].overcome(matched)] or front
        if not blockers or not _counts(run, [changes[i] for i in blockers], same):
            continue
        taken.append((run, end - start, blockers))
    hole = [(run, size) for run, size, f in taken if any(_open(changes[i]) for i in f)]
    if standing is not None and hole:
        turn = n - min(c.at for c in changes if _open(c))
        if sum(size for _, size in hole) < MOST * turn:
            chance = {run for run, _ in hole if not standing.knows(run.text, same=same)}
            taken = [t for t in taken if t[0] not in chance]
        standing.note([run.text for run, _ in hole])
    behind_open = sum(size for _, size, f in taken if any(_open(changes[i]) for i in f))
    out: dict[int, float] = {}
    behind: dict[int, str] = {}
    for run, size, blockers in taken:
        if behind_open < LEAST_CLOSING and any(_open(changes[i]) for i in blockers):
            continue
        keys = {slot_key(changes[i]): i for i in reversed(blockers)}
        for i in keys.values():
            out[i] = out.get(i, 0.0) + size / len(keys)
            if len(behind.get(i, "")) < 1000:
                behind[i] = f"{behind.get(i, '')}\n{run.text}"
    return out, behind


def _open(change: Change) -> bool:
    """Whether it stands where new text is expected."""
    return change.closing or (change.content and change.role == "user")


def _counts(run: Run, blockers: Sequence[Change], same: bool) -> bool:
    """Whether what stayed behind these changes is a loss at all."""
    if any(_open(c) for c in blockers):
        # The last turn made way for the next one; its own fixed text counts, what followed not.
        if run.answer or run.role in ("assistant", "model", "tool"):
            return False
        if run.end - run.start < LEAST_OPEN:
            return False
        if not run.closing and run.role != "system":
            return False
    if not same:
        walls = [c for c in blockers if c.content and c.role != "system"]
        return not walls or run.closing
    return not (run.answer and any(c.closing for c in blockers))


def _alike(new: Sequence[Unit], runs: Sequence[Run]) -> bool:
    """Whether two calls of different sessions are calls of one kind."""
    shares: list[float] = []
    for role in ("tools", "system"):
        total = sum(u.tokens for u in new if u.role == role)
        if total:
            shares.append(sum(r.end - r.start for r in runs if r.role == role) / total)
    return not shares or max(shares) >= ALIKE


def _other_namespace(past: Past, other: Past) -> Change:
    if past.call.model != other.call.model:
        return Change(
            0, "model_changed", "KV507", "words", "model", "system", "model: ",
            other.call.model, past.call.model,
        )  # fmt: skip
    return Change(
        0, "other_namespace", "KV707", "id", "cache key", "system", "salt: ",
        other.call.salt or "", past.call.salt or "",
    )  # fmt: skip


def _continues(past: Past, previous: Past) -> bool:
    """Whether anything that was said in the previous call is still there."""
    talk = {p.key for p in previous.call.parts if p.role not in (None, "system", "developer")}
    return any(p.key in talk for p in past.call.parts)


def _may_strip(call: Call) -> bool:
    """Whether the reply has something that clients are known to send back otherwise."""
    return any(
        p.kind in ("reasoning", "tool_call") or cues.without_thoughts(p.text) is not None
        for p in call.answer
    )
