"""Scheduler: continuous batching over a KVCache. `schedule -> (run) -> commit`.

A step may be planned while the one before it still runs: what that one samples is counted, though not
known (`Request.expect`). Steps are committed in the order in which they were planned.

    schedule 1    run 1 ............ commit 1
                  schedule 2         run 2 ............ commit 2
                                     schedule 3

Each step mixes one token of every decoding request with chunks of prompts, under a token budget
(budget.py). Prompts that can end in a step go before one that cannot; but one that a step passes over
for them comes first in the next. What must always hold:

- Admission matches, locks, and only then counts what is left (D, O); it leaves room for the tokens
  that running requests are expected to add.
- A request that shares a long uncached prefix with one that is being prefilled waits for it (S):
  the first computes it, the others match its pages as they are published.
- When a step cannot get its pages, the cheapest running request is retracted: its work goes to the
  tree, it returns to the head of the queue with its output kept (P). Not while a step runs: then
  there is no next one until it is committed.
- `abort` works in four states (G): queued, mid-chunk, decoding, and in flight (between `schedule`
  and `commit`); the last is only marked, and released by `commit`.
- A request that ends in one step may be part of the next one, which was planned before. That one's
  result is of no use, and its K/V goes to slots that may have a new owner by then: whoever runs steps
  must run them in order, and so does what reads or writes these slots later.

The scheduler sees token ids, never text or tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentkv.engine.errors import PoolTooSmall
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.sched.budget import Budget
from agentkv.engine.sched.queue import POLICIES
from agentkv.engine.sched.request import Request, Status
from agentkv.engine.types import FinishReason

FOLLOW_TOKENS = 32
"""A request waits for another one's prefill if that saves it at least so many tokens."""

RESERVE_CAP = 4096
RATIO_START, RATIO_FLOOR, RATIO_STEPS = 0.7, 0.1, 600
"""Share of their remaining tokens that is reserved for running requests: falls from the first to
the second over so many decode steps, and is raised by a retraction (formula of SGLang)."""


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens `[start, start + count)` of one request; logits are wanted from `first_row` on.

    `samples`: the last row yields the next token. `prefill`: of the prompt, or of what was retracted.
    """

    request: Request
    start: int
    count: int
    first_row: int
    samples: bool
    prefill: bool

    @property
    def rows(self) -> int:
        return self.start + self.count - self.first_row


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what to run, and who was admitted for the first time in it."""

    works: list[Work]
    batch: ForwardBatch
    admitted: list[Request] = field(default_factory=list)


class Scheduler:
    """Decides what each step computes. Not thread-safe: one worker owns it."""

    def __init__(
        self,
        cache: KVCache,
        *,
        max_batch_tokens: int = 512,
        fixed_tokens: int | None = None,
        max_running: int = 16,
        policy: str = "lpm",
    ) -> None:
        """`fixed_tokens`: the part of a step's time that does not depend on its tokens, in tokens;
        None: all of it (`Budget`)."""
        self.cache = cache
        self.max_batch_tokens = max_batch_tokens
        self.fixed_tokens = fixed_tokens
        self.max_running = max_running
        self._order = POLICIES[policy]
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.retractions = 0
        self.planned: list[Step] = []
        """Steps that are not committed, oldest first."""
        self._ratio = RATIO_START

    # -- from outside

    def submit(self, request: Request) -> None:
        """Queue a request. Raises `PoolTooSmall` at once when it could never fit."""
        needed = self.cache.pages_for(request.last)
        if needed > self.cache.total_pages:
            raise PoolTooSmall(
                needed=needed, total=self.cache.total_pages, page_size=self.cache.page_size
            )
        self.waiting.append(request)

    def abort(self, request: Request) -> bool:
        """Stop a request in whatever state it is. False if it had finished already."""
        if request.status is Status.FINISHED:
            return False
        request.aborted = True
        if any(w.request is request for step in self.planned for w in step.works):
            return True
        self.finish(request, "abort")
        return True

    def finish(
        self, request: Request, reason: FinishReason, stop_reason: int | None = None
    ) -> None:
        """End a request now: publish what it computed, release what it holds."""
        if request.status is Status.FINISHED:
            return
        if request.status is Status.WAITING:
            self.waiting.remove(request)
        else:
            self.running.remove(request)
        request.forget()
        self.cache.release(request)
        request.status = Status.FINISHED
        request.finish_reason = reason
        request.stop_reason = stop_reason

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def check(self, *, deep: bool = False) -> None:
        """Verify page conservation over everything that runs. Raises with all terms."""
        self.cache.check(self.running, deep=deep)

    # -- one step

    def schedule(self) -> Step | None:
        """The next step, or None when nothing can run now: nothing waits, all wait for pages, or what
        comes next depends on the step that runs. At most one step may be uncommitted."""
        assert len(self.planned) <= 1
        if not self._make_room():
            return None
        admitted: list[Request] = []
        going = [r for r in self.running if not (r.exhausted or r.aborted)]
        works = [self._work(r, 1) for r in going if not r.prefilling]
        budget = Budget.of(self.max_batch_tokens, self.fixed_tokens, len(works))
        prompts = [r for r in going if r.prefilling]
        prompts.sort(key=lambda r: (not r.passed_over, r.pending))
        for request in prompts:
            if request.pending > budget.left and not request.passed_over:
                self._admit(works, admitted, budget, ending=True)
            count = budget.share(request.pending, 1 + len(self.waiting))
            request.passed_over = count == 0
            if count:
                self._prefill(request, count, works, budget)
        self._admit(works, admitted, budget)
        if not works:
            return None
        step = Step(works, self._batch(works), admitted)
        self.planned.append(step)
        sampling = 0
        for work in works:
            work.request.scheduled = work.start + work.count
            if work.samples:
                work.request.expect(sampling)
                sampling += 1
        return step

    def commit(self, step: Step, tokens: Sequence[int | None]) -> list[Request]:
        """Book the oldest planned step, which has run. `tokens[i]` was sampled for `step.works[i]`
        (None if it did not sample). Returns the requests that ended in this step, aborted ones
        included."""
        assert step is self.planned[0]
        del self.planned[0]
        ended: list[Request] = []
        for work, token in zip(step.works, tokens, strict=True):
            request = work.request
            before = request.status is Status.FINISHED
            if before:  # it ended in the step before this one
                continue
            request.committed = work.start + work.count
            if work.prefill:
                self.cache.publish(request)
            if request.aborted:
                self.finish(request, "abort")
            elif work.samples and token is not None:
                self._take(request, token)
            elif request.max_new == 0 and request.committed == request.known:
                self.finish(request, "length")
            if request.status is Status.FINISHED:
                ended.append(request)
        self._ratio = max(RATIO_FLOOR, self._ratio - (RATIO_START - RATIO_FLOOR) / RATIO_STEPS)
        if self.idle:
            self._ratio = RATIO_START
        return ended

    def drop(self, step: Step) -> None:
        """Take back a planned step that failed: nothing of it is published, its requests are aborted."""
        self.planned.remove(step)
        for work in step.works:
            self.finish(work.request, "abort")

    # -- inside

    def _take(self, request: Request, token: int) -> None:
        request.learn(token)
        sampled = request.known - request.prompt_len
        if token in request.stop_ids and sampled > request.min_new:
            self.finish(request, "stop", token)
        elif sampled >= request.max_new:
            self.finish(request, "length")

    def _make_room(self) -> bool:
        """Pages for one more token of every decoding request; retract until they are there. False when
        that would take something from a step that runs."""
        for request in list(self.running):
            if request.status is Status.WAITING:  # taken back for one before it
                continue
            if request.exhausted or request.aborted or request.prefilling:
                continue
            if request.scheduled < request.allocated:
                continue
            self.cache.grow_ahead(request, request.last)
            while not self.cache.grow(request, request.scheduled + 1):
                if self.planned:
                    return False
                victim = self._victim()
                self._retract(victim)
                if victim is request:
                    break
        return True

    def _victim(self) -> Request:
        """Who loses least by starting over: the fewest outputs, then the longest prompt."""
        return min(self.running, key=lambda r: (r.sampled, -r.prompt_len))

    def _retract(self, request: Request) -> None:
        self.running.remove(request)
        self.cache.release(request)
        request.status = Status.WAITING
        request.load_tried = False
        request.retractions += 1
        self.retractions += 1
        self.waiting.insert(0, request)
        left = sum(r.max_new for r in self.running) + 1
        done = sum(r.sampled for r in self.running) + 20 * len(self.running)
        self._ratio = min(1.0, max(self._ratio, done / left))

    def _prefill(self, request: Request, count: int, works: list[Work], budget: Budget) -> None:
        budget.take(count, ends=count == request.pending)
        works.append(self._work(request, count))

    def _admit(
        self, works: list[Work], admitted: list[Request], budget: Budget, *, ending: bool = False
    ) -> None:
        """Take in what waits, as far as this step has room. `ending`: only prompts that end in it."""
        if not self.waiting or budget.left <= 0 or len(self.running) >= self.max_running:
            return
        order = self._order(self.waiting, self.cache)
        fresh = {w.request.id for step in self.planned for w in step.works if w.prefill}
        leaders = [r for r in self.running if r.prefilling or r.id in fresh]
        for request in order:
            if budget.left <= 0 or len(self.running) >= self.max_running:
                break
            if not request.prefetch and self._follows(request, leaders):
                continue
            if self.cache.load(request):
                continue
            if request.prefetch:
                self.finish(request, "length")
                continue
            pending = request.length - self.cache.peek(request)
            if ending and pending > budget.left:
                continue
            count = budget.share(pending, len(self.waiting))
            if not count:
                break  # the first of the next step: what it has below the pool is on its way
            if not self._try_open(request) and not self._after_all(request):
                break
            self.waiting.remove(request)
            request.status = Status.RUNNING
            self.running.append(request)
            leaders.append(request)
            if request.retractions == 0:
                admitted.append(request)
            self._prefill(request, min(count, request.pending), works, budget)
        if not ending:
            for request in self.waiting:
                request.passes += 1

    def _follows(self, request: Request, leaders: list[Request]) -> bool:
        """Is someone computing a prefix that this request could use, and not done with it yet?"""
        if not leaders or not self.cache.enabled:
            return False
        have = self.cache.peek(request)
        for leader in leaders:
            if leader.namespace != request.namespace or not leader.published:
                continue
            limit = min(request.match_limit, leader.length)
            ids, theirs = request.ids[:limit], leader.ids[:limit]
            differs = ids != theirs
            first = int(differs.argmax()) if limit else 0
            shared = first if limit and differs[first] else limit
            shared -= shared % self.cache.page_size
            done = leader.tree_owned
            worth = shared - have >= min(FOLLOW_TOKENS, request.match_limit)
            if worth and done < shared and shared > have:
                return True
        return False

    def _try_open(self, request: Request) -> bool:
        """Lock the request's prefix and give it pages for the rest of its prompt, or neither."""
        if not self._fits(request, self.cache.peek(request)):
            return False
        self.cache.open(request)
        # Locking took pages out of the evictable ones: count again (D).
        if self._fits(request, request.allocated) and self.cache.grow(request, request.length):
            self.cache.grow_ahead(request, request.last)
            return True
        self.cache.release(request)
        if request.retractions == 0:
            request.cached_tokens = None
        return False

    def _after_all(self, request: Request) -> bool:
        """Nothing runs, and still there is no room: what was loaded for others is in the way."""
        if self.running:
            return False
        held = [r for r in self.waiting if r.held is not None and r is not request]
        for other in held:
            self.cache.give_up(other)
        return bool(held) and self._try_open(request)

    def _fits(self, request: Request, cached: int) -> bool:
        need = self.cache.pages_for(request.length) - cached // self.cache.page_size
        if self.running:
            need += self._expected(request) + sum(self._expected(r) for r in self.running)
        return need <= self.cache.available_pages

    def _expected(self, request: Request) -> int:
        left = min(request.max_new - request.sampled, RESERVE_CAP)
        ahead = max(0, request.allocated - request.length)  # slots it has already
        return self.cache.pages_for(max(0, int(left * self._ratio) - ahead))

    def _work(self, request: Request, count: int) -> Work:
        start, end = request.scheduled, request.scheduled + count
        samples = end == request.length and request.max_new > 0
        first = end - 1 if samples else end
        target = request.score_next
        if target is not None and target < request.prompt_len and start <= target - 1 < end:
            first = target - 1
        return Work(request, start, count, first, samples, request.prefilling)

    def _batch(self, works: list[Work]) -> ForwardBatch:
        counts = np.array([w.count for w in works], dtype=np.int32)
        ends = np.array([w.start + w.count for w in works], dtype=np.int32)
        qo_indptr = np.zeros(len(works) + 1, dtype=np.int32)
        kv_indptr = np.zeros(len(works) + 1, dtype=np.int32)
        np.cumsum(counts, out=qo_indptr[1:])
        np.cumsum(ends, out=kv_indptr[1:])
        spans = [(w.request, w.start, w.start + w.count) for w in works]
        rows = [
            np.arange(qo_indptr[i] + w.first_row - w.start, qo_indptr[i + 1], dtype=np.int32)
            for i, w in enumerate(works)
            if w.rows
        ]
        return ForwardBatch(
            input_ids=np.concatenate([r.ids[a:b] for r, a, b in spans]),
            positions=np.concatenate([np.arange(a, b, dtype=np.int32) for _, a, b in spans]),
            out_slots=np.concatenate([r.slots[a:b] for r, a, b in spans]),
            qo_indptr=qo_indptr,
            kv_indptr=kv_indptr,
            kv_indices=np.concatenate([r.slots[:b] for r, _, b in spans]),
            logit_rows=np.concatenate(rows) if rows else np.empty(0, dtype=np.int32),
        )
