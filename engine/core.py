"""Core: what the worker's thread does, one step at a time.

    on a CPU          schedule 1, run 1, commit 1, schedule 2 ...
    on a device       schedule 2 and queue it while 1 runs; then read and commit 1; schedule 3 ...

The second way needs tokens to be chosen on the device, by rules that need no other token of the same
request: one whose next token depends on a grammar, on penalties or on what else the host must see
first (`DeviceSampler.draft`) has its step read before anything else is planned.

Nobody but the worker's thread touches any of this.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from agentkv.engine.call import Call, Sequel, tiers_of
from agentkv.engine.errors import EngineClosed, EngineError, RankFailed
from agentkv.engine.keep import Keeper, lasting
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.eviction import POLICIES as EVICTION
from agentkv.engine.kv.tree import TreeError
from agentkv.engine.lower import LowerTiers
from agentkv.engine.parts import Parts
from agentkv.engine.run.backends import no_bits
from agentkv.engine.run.sampler import Draft, Sampled, score_prompt
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.sched.budget import CPU_FIXED
from agentkv.engine.sched.request import Request, Status
from agentkv.engine.sched.scheduler import Scheduler, Step, Work
from agentkv.engine.stats import Counters
from agentkv.engine.types import LoadFacts
from agentkv.engine.why import Explainer

log = logging.getLogger("agentkv.engine")

LEARN_TOKENS = 64
"""A step teaches the prefill rate when it computes at least so many tokens."""


@dataclass(slots=True)
class Flight:
    """A step that was queued and is not committed. `sequels`: of `step.works`, in order. `logits`: of the
    rows that were wanted; None once the tokens were drafted, which are then on their way."""

    step: Step
    began: float
    sequels: list[Sequel]
    logits: torch.Tensor | None
    draft: Draft | None


class Core:
    """Scheduler, runner and what is told to calls. `post`: has the worker run something between steps.

    Raises `InvalidRequest` when the settings promise what these parts cannot keep.
    """

    def __init__(self, parts: Parts, post: Callable[[Callable[[], None]], None]) -> None:
        config = self.config = parts.config
        self.parts = parts
        self.runner = parts.runner
        self.calls: dict[str, Call] = {}
        """By id. Callers add to it, under the worker's lock; only the worker takes away."""
        self._sequels: dict[str, Sequel] = {}
        self._flight: Flight | None = None
        self._settled = 0.0
        self.explainer = Explainer(lambda ids: parts.tokenizer.decode(ids, skip_special=False))
        self.counters = Counters()
        self.keeper = Keeper()
        self.lower: LowerTiers | None = None
        self.bit_exact = self.runner.bit_exact
        if config.lower:
            self.lower = LowerTiers(
                config,
                parts.pool,
                parts.model.fingerprint,
                post,
                self._forward_nothing,
                parts.device,
                parts.parallel,
            )
            self.bit_exact = self.bit_exact and not self.lower.lossy
        if config.deterministic and not self.bit_exact:
            if self.lower is not None:
                self.lower.close()
            dtype = str(parts.dtype).removeprefix("torch.")
            raise no_bits(config, parts.device, parts.attention, dtype)
        self._new_cache()

    @property
    def idle(self) -> bool:
        return self._flight is None and self.scheduler.idle

    # -- commands

    def start(self, call: Call) -> None:
        for sequel in call.sequels:
            self._sequels[sequel.request.id] = sequel
            self.scheduler.submit(sequel.request)

    def abort(self, call: Call) -> None:
        if self.calls.get(call.id) is not call:
            return  # it ended, or failed, before this was carried out
        call.aborted = True
        for sequel in call.sequels:
            if not sequel.done:
                self.scheduler.abort(sequel.request)
                if sequel.request.status is Status.FINISHED:  # else with the step that is under way
                    self._ended(sequel, time.perf_counter())

    # -- steps

    def step(self) -> bool:
        """Queue the next step, book the one before it. False when there was nothing to do."""
        last, self._flight = self._flight, None
        step = self.scheduler.schedule()
        flight: Flight | None = None
        failed: Exception | None = None
        if step is not None:
            began = time.perf_counter()
            for request in step.admitted:
                self._admitted(request, began)
            try:
                flight = self._launch(step, began, last)
            except RankFailed:
                raise
            except Exception as error:
                failed = error
        if last is not None:
            self._settle(last)
        if step is not None and failed is not None:
            self._dropped(step, failed)
        elif flight is not None and flight.draft is None:
            self._settle(flight)
        else:
            self._flight = flight
        if self.config.check_invariants:
            self.scheduler.check(deep=True)
        elif self.idle:
            self._check_idle()
        return step is not None or last is not None

    def _launch(self, step: Step, began: float, last: Flight | None) -> Flight:
        """Queue a step. `last`: the one that still runs, some of whose tokens this one may start from."""
        ahead = self.parts.ahead
        sequels = [self._sequels[work.request.id] for work in step.works]
        if ahead is None:
            return Flight(step, began, sequels, self.runner.forward(step.batch), None)
        before = None if last is None or last.draft is None else last.draft.tokens
        logits = ahead.launch(step.batch, before)
        draft = None
        if not any(_scores(work) for work in step.works):
            states = [s.state for w, s in zip(step.works, sequels, strict=True) if w.samples]
            draft = self.parts.sampler.draft(logits, states)
        return Flight(step, began, sequels, None if draft else logits, draft)

    def _settle(self, flight: Flight) -> None:
        """Read what a step gave, commit it, and tell the calls."""
        step = flight.step
        try:
            found = self._tokens(flight)
        except Exception as error:
            if isinstance(error, RankFailed):
                raise
            self._dropped(step, error)
            return
        if self.lower is not None:  # before the commit, which may have its pages copied
            sent = None if flight.draft is None else flight.draft.sent
            self.lower.mover.copies.committed = sent
        there = [s if s.request.id in self._sequels else None for s in flight.sequels]
        for one, token in zip(there, found, strict=True):
            if one is not None and token is not None:
                one.sampled(token)
        ended = self.scheduler.commit(step, [None if t is None else t.token_id for t in found])
        now = time.perf_counter()
        seconds = now - max(flight.began, self._settled)
        self._settled = now
        self.counters.stepped(step, seconds)
        count = len(step.batch.input_ids)
        if self.lower is not None and count >= LEARN_TOKENS:
            before = float(step.batch.positions.sum())
            self.lower.costs.computed(count, seconds, before=before)
        for one, token in zip(there, found, strict=True):
            if one is not None and token is not None and not one.request.aborted:
                self._sampled(one, now)
        for request in ended:
            sequel = self._sequels.get(request.id)
            if sequel is not None and not sequel.done:
                self._ended(sequel, now)

    def _tokens(self, flight: Flight) -> list[Sampled | None]:
        """One for each work that samples, None for each other. Waits for the step."""
        works = flight.step.works
        if flight.draft is not None:
            drafted = iter(flight.draft.read())
            return [Sampled(next(drafted)) if work.samples else None for work in works]
        logits = flight.logits
        assert logits is not None
        rows: list[int] = []
        states = []
        row = 0
        for work, sequel in zip(works, flight.sequels, strict=True):
            if _scores(work):
                self._score(work, sequel, logits[row : row + work.rows])
            row += work.rows
            if work.samples:
                rows.append(row - 1)
                states.append(sequel.state)
        if not rows:
            if self.parts.ahead is not None:
                self.parts.ahead.wait()
            return [None] * len(works)
        picked = logits if len(rows) == len(logits) else logits[rows]
        sampled = iter(self.parts.sampler.sample(picked, states))
        return [next(sampled) if work.samples else None for work in works]

    def _score(self, work: Work, sequel: Sequel, logits: torch.Tensor) -> None:
        """Log-probabilities of the prompt's tokens behind the rows of `work`."""
        request = work.request
        end = min(work.start + work.count, request.prompt_len - 1)
        targets = request.ids[work.first_row + 1 : end + 1]
        top = sequel.call.params.prompt_logprobs or 0
        sequel.call.scored(
            work.first_row + 1, score_prompt(logits[: len(targets)].cpu(), targets, top)
        )
        request.score_next = end + 1

    def _dropped(self, step: Step, error: Exception) -> None:
        log.error("a step of %d sequences failed", len(step.works), exc_info=error)
        self.scheduler.drop(step)
        sequels = [self._sequels.get(work.request.id) for work in step.works]
        for call_id in {one.call.id for one in sequels if one is not None}:
            self._fail(self.calls[call_id], EngineError(f"A step of the engine failed: {error}"))

    # -- what calls are told

    def _admitted(self, request: Request, now: float) -> None:
        sequel = self._sequels[request.id]
        call = sequel.call
        if call.facts is not None:
            return
        self.keeper.began(self.scheduler, call.namespace, call.session)
        matched = request.cached_tokens or 0
        limit = request.match_limit if self.config.prefix_cache else 0
        verdict, record = self.explainer.explain(
            call.prompt,
            namespace=call.namespace,
            session=call.session,
            matched=matched,
            known=request.known_tokens,
            page_size=self.config.page_size,
            limit=limit,
        )
        call.admitted(
            now,
            matched,
            verdict,
            record,
            self.config.page_size,
            self.counters.ms_per_token,
            request.loaded,
            _load_facts(request),
        )
        self.counters.admitted(len(call.prompt.token_ids), tiers_of(matched, request.loaded))

    def _sampled(self, sequel: Sequel, now: float) -> None:
        """A token came: emit its text, and end the choice where a stop string stands."""
        if sequel.done or sequel.request.id not in self._sequels:  # its call failed in this step
            return
        sequel.call.token_came(now)
        self.counters.generation_tokens += 1
        matcher = sequel.state.matcher
        if matcher is not None and matcher.error is not None:
            self._fail(sequel.call, EngineError(f"The grammar cannot be followed: {matcher.error}"))
            return
        sequel.feed()
        if sequel.output.stopped is not None or sequel.complete:
            self.scheduler.finish(sequel.request, "stop")
            self._ended(sequel, now)
        elif sequel.request.status is not Status.FINISHED:
            sequel.send()

    def _ended(self, sequel: Sequel, now: float) -> None:
        sequel.end()
        self._sequels.pop(sequel.request.id, None)
        call = sequel.call
        if not call.done:
            return
        self.calls.pop(call.id, None)
        self.counters.ended(call)
        if call.record is not None:
            first = call.sequels[0].request
            tokens = first.tokens.copy()
            self.explainer.finished(call.record, tokens, first.computed)
            self.keeper.ended(call.namespace, call.session, tokens[: first.computed])
        if call.pin is not None and not call.aborted:
            end = lasting(call.prompt.spans)
            if end:
                ids = call.prompt.token_ids[:end]
                self.keeper.try_pin(self.scheduler, call.namespace, ids, call.pin)
        if call.prompt.text and not call.aborted:
            for one in call.sequels:
                cut = one.text if one.output.stopped is not None else None
                self.parts.renderer.remember(call.prompt, one.state.output_ids, text=cut)
        call.finish(now, self.parts.name)

    def _fail(self, call: Call, error: EngineError) -> None:
        for sequel in call.sequels:
            self.scheduler.abort(sequel.request)
            self._sequels.pop(sequel.request.id, None)
        self.calls.pop(call.id, None)
        call.emit(error)

    # -- the cache

    def _check_idle(self) -> None:
        """With nothing running, every page is free or evictable; if not, say so and start afresh."""
        cache = self.scheduler.cache
        locked = cache.tree.locked_tokens
        moves = cache.tiers is not None and cache.tiers.locks  # goes on when calls have ended
        try:
            self.scheduler.check()
            if locked and not moves:
                raise TreeError(f"{locked} tokens locked when idle")
        except TreeError:
            log.exception("the KV account is wrong; the cache is emptied")
            self._new_cache()

    def _new_cache(self) -> None:
        config, tokens = self.config, self.parts.pool_tokens
        cache = KVCache(
            tokens // config.page_size,
            config.page_size,
            enabled=config.prefix_cache,
            eviction=EVICTION[config.eviction],
            floor=int(config.namespace_floor * tokens),
            quota=int(config.namespace_quota * tokens) if config.namespace_quota < 1 else None,
            pin_tokens=int(config.pin_share * tokens),
            pause_tokens=int(config.pause_share * tokens),
            lower=None if self.lower is None else self.lower.make,
        )
        self.scheduler = Scheduler(
            cache,
            max_batch_tokens=self.parts.batch_tokens,
            fixed_tokens=CPU_FIXED if self.parts.device is None else None,
            max_running=config.max_running,
            policy=config.policy,
        )

    def _forward_nothing(self, tokens: int) -> None:
        """Prefill so many tokens into slots that nobody has yet, to see how long it takes."""
        parts = self.parts
        count = min(tokens, parts.pool_tokens, parts.max_model_len)
        row = np.arange(count, dtype=np.int32)
        ends = np.array([0, count], dtype=np.int32)
        with torch.inference_mode():
            logits = self.runner.forward(
                ForwardBatch(
                    input_ids=row % np.int32(parts.model.config.vocab_size),
                    positions=row,
                    out_slots=row,
                    qo_indptr=ends,
                    kv_indptr=ends,
                    kv_indices=row,
                    logit_rows=row[-1:],
                )
            )
            logits.cpu()  # a device is waited for

    # -- the end

    def shut_down(self, error: EngineClosed, take: Callable[[], deque[Callable[[], None]]]) -> None:
        """Let running calls go, bring what the cache holds to disk, and end what is left with `error`."""
        whole = error.__cause__ is None

        def run_posted() -> None:
            for command in take():
                command()

        flight, self._flight = self._flight, None
        if self.lower is not None:
            try:
                if whole:
                    if flight is not None:
                        self._settle(flight)
                    for request in [*self.scheduler.running, *self.scheduler.waiting]:
                        self.scheduler.finish(request, "abort")
                    self.lower.finish(run_posted)
            except Exception:
                log.exception("the tiers below the pool could not be written out")
            finally:
                self.lower.close()
        if self.parts.parallel is not None:
            self.parts.parallel.close()
        for call in list(self.calls.values()):
            self.calls.pop(call.id, None)
            call.emit(error)


def _scores(work: Work) -> bool:
    """Whether log-probabilities of prompt tokens are wanted of its rows."""
    wanted = work.request.score_next
    return wanted is not None and wanted < work.request.prompt_len and work.rows > 0


def _load_facts(request: Request) -> LoadFacts | None:
    estimate = request.load_estimate
    if estimate is None:
        return None
    return LoadFacts(
        tokens=estimate.tokens,
        loaded=sum(request.loaded.values()),
        load_ms=estimate.load * 1000,
        compute_ms=estimate.compute * 1000,
    )
