"""One call of a user: a prompt, its choices, and the facts that go back with them.

A call has `n` sequels: sequences that share the prompt and differ in their samples. Only the worker
touches a call once it was submitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkv.engine.kv.eviction import marks_of
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.run.grammar import CompiledGrammar
from agentkv.engine.run.sampler import Sampled, SampleState
from agentkv.engine.sched.request import Request
from agentkv.engine.text.detok import OutputText
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.engine.types import (
    CacheFacts,
    Choice,
    FinishReason,
    LoadFacts,
    RenderedPrompt,
    RequestOutput,
    SamplingParams,
    StreamEvent,
    Timings,
    TokenLogprob,
)
from agentkv.engine.why import Record, Verdict


class Sequel:
    """One choice of a call: its request, sampler state, text and log-probabilities."""

    def __init__(
        self, call: Call, index: int, request: Request, state: SampleState, output: OutputText
    ) -> None:
        self.call = call
        self.index = index
        self.request = request
        self.state = state
        self.output = output
        self.logprobs: list[TokenLogprob] = []
        self.text = ""
        self.done = False
        self._sent = 0
        self._unsent = ""

    def sampled(self, token: Sampled) -> None:
        self.state.output_ids.append(token.token_id)
        if token.logprob is not None:
            self.logprobs.append(token.logprob)

    def feed(self) -> None:
        """Turn the last sampled token into text, unless it is the one that ended the choice."""
        if self.request.stop_reason is None:
            self._unsent += self.output.feed(self.state.output_ids[-1])

    def send(self, reason: FinishReason | None = None) -> None:
        """Emit what has come since the last time."""
        text, self._unsent = self._unsent, ""
        self.text += text
        ids = self.state.output_ids[self._sent :]
        logprobs = self.logprobs[self._sent :] if self.call.params.logprobs is not None else None
        self._sent += len(ids)
        self.call.emit(
            StreamEvent(
                index=self.index,
                text=text,
                token_ids=tuple(ids),
                logprobs=None if logprobs is None else tuple(logprobs),
                finish_reason=reason,
                stop_reason=self.stop_reason if reason else None,
                cache=self.call.facts,
            )
        )

    def end(self) -> None:
        """Emit the last piece, with the finish reason."""
        self.done = True
        self._unsent += self.output.finish()
        self.send(self.finish_reason)

    @property
    def finish_reason(self) -> FinishReason:
        if self.output.stopped is not None or (self.complete and self.request.aborted is False):
            return "stop"
        return self.request.finish_reason or "abort"

    @property
    def complete(self) -> bool:
        """The grammar is fulfilled, and nothing may follow."""
        return self.state.matcher is not None and self.state.matcher.done

    @property
    def stop_reason(self) -> str | int | None:
        if self.output.stopped is not None:
            return self.output.stopped
        token = self.request.stop_reason
        return token if token in self.call.params.stop_token_ids else None

    def choice(self) -> Choice:
        return Choice(
            index=self.index,
            text=self.text,
            token_ids=tuple(self.state.output_ids),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            logprobs=tuple(self.logprobs) if self.call.params.logprobs is not None else None,
            opener_scores=self.state.opener_scores,
        )


class Call:
    """A submitted call. `emit` may be called from the worker and hands events to the caller."""

    def __init__(
        self,
        call_id: str,
        prompt: RenderedPrompt,
        params: SamplingParams,
        *,
        max_new: int,
        namespace: Namespace,
        session: str | None,
        eos: frozenset[int],
        tokenizer: Tokenizer,
        emit: Callable[[Any], None],
        grammar: CompiledGrammar | None = None,
        pin: float | None = None,
    ) -> None:
        self.id = call_id
        self.prompt = prompt
        self.params = params
        self.namespace = namespace
        self.session = session
        self.emit = emit
        self.pin = pin
        """Seconds for which the lasting part of the prompt is to be kept; None: no pin."""
        self.aborted = False
        self.facts: CacheFacts | None = None
        self.record: Record | None = None
        self._submitted = time.perf_counter()
        self._admitted: float | None = None
        self._first_token: float | None = None
        self._saved_ms = 0.0
        self._scores: list[TokenLogprob | None] = []
        ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos)
        self.sequels: list[Sequel] = []
        marks = marks_of(prompt.spans)
        for index in range(params.n):
            request = Request(
                f"{call_id}#{index}",
                prompt.token_ids,
                max_new=max_new,
                namespace=namespace,
                min_new=min(params.min_tokens, max_new),
                stop_ids=ends,
                score_from=None if params.prompt_logprobs is None else params.prompt_logprobs_start,
                marks=marks,
            )
            state = SampleState(
                params=params,
                prompt_ids=prompt.token_ids,
                output_ids=[],
                eos_ids=ends,
                index=index,
                matcher=grammar.matcher(ends=ends, max_new=max_new) if grammar else None,
            )
            output = OutputText(tokenizer, params.stop, params.include_stop)
            self.sequels.append(Sequel(self, index, request, state, output))

    @property
    def done(self) -> bool:
        return all(s.done for s in self.sequels)

    def scored(self, position: int, scores: Sequence[TokenLogprob]) -> None:
        """Log-probabilities of prompt tokens from `position` on. Choices score the same; once is enough."""
        if not self._scores:
            self._scores = [None] * len(self.prompt.token_ids)
        self._scores[position : position + len(scores)] = scores

    def admitted(
        self,
        now: float,
        matched: int,
        verdict: Verdict,
        record: Record,
        page_size: int,
        ms_per_token: float,
        loaded: Mapping[str, int] | None = None,
        load: LoadFacts | None = None,
    ) -> None:
        """The first choice was admitted: the facts of reuse are known, and fixed from here on."""
        self._admitted = now
        self._saved_ms = matched * ms_per_token
        self.record = record
        spans = tuple(
            (s.name, s.end - s.start, max(0, min(s.end, matched) - s.start))
            for s in self.prompt.spans
        )
        self.facts = CacheFacts(
            prompt_tokens=len(self.prompt.token_ids),
            cached_tokens=matched,
            cached_by_tier=tiers_of(matched, loaded or {}),
            reusable_tokens=verdict.reusable,
            resident_tokens=matched,
            page_size=page_size,
            miss=verdict.miss,
            span_cached=spans,
            load=load,
        )
        self.emit(StreamEvent(index=-1, cache=self.facts))

    def token_came(self, now: float) -> None:
        if self._first_token is None:
            self._first_token = now

    def finish(self, now: float, model: str) -> None:
        """Emit the result: the last event of the call."""
        start = self._submitted
        admitted = now if self._admitted is None else self._admitted
        first = now if self._first_token is None else self._first_token
        facts = self.facts or CacheFacts(
            prompt_tokens=len(self.prompt.token_ids),
            cached_tokens=0,
            cached_by_tier={"device": 0, "host": 0, "disk": 0},
            reusable_tokens=0,
            resident_tokens=0,
            page_size=1,
            miss=None,
        )
        output = RequestOutput(
            request_id=self.id,
            model=model,
            prompt_token_ids=self.prompt.token_ids,
            choices=tuple(s.choice() for s in self.sequels),
            cache=facts,
            times=Timings(
                queue=(admitted - start) * 1000,
                prefill=(first - admitted) * 1000,
                ttft=(first - start) * 1000,
                decode=(now - first) * 1000,
                saved_prefill=self._saved_ms,
            ),
            spans=self.prompt.spans,
            session=self.session,
            prompt_logprobs=None
            if self.params.prompt_logprobs is None
            else tuple(self._scores or [None] * len(self.prompt.token_ids)),
        )
        self.emit(StreamEvent(index=-1, cache=facts, output=output))


def tiers_of(matched: int, loaded: Mapping[str, int]) -> dict[str, int]:
    """Cached tokens by the tier they were in when the call arrived; they sum up to `matched`."""
    disk = min(matched, loaded.get("disk", 0))
    host = min(matched - disk, loaded.get("host", 0))
    return {"device": matched - host - disk, "host": host, "disk": disk}
