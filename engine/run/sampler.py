"""From logits to tokens.

Order of operations on a row of raw logits (all in float32):

    allowed mask, min_tokens ban -> logit bias -> repetition, presence, frequency penalty
    -> temperature -> top-k -> top-p -> min-p -> draw

Penalties: the repetition penalty (Keskar et al., CTRL, 2019) looks at prompt and output, presence
and frequency (OpenAI) at the output only. Reported log-probabilities are the log-softmax of the
*raw* logits, so they say what the model believes, not what the settings made of it. A grammar's
opener bias is added to the first position's logits before anything else.

A request draws from its own generator, one number a token, so that its tokens do not depend on
who shares the batch. With `seed`, choice i of a request starts from a mix of seed and i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from agentkv.engine.device import Event
from agentkv.engine.run.grammar_matcher import Matcher
from agentkv.engine.types import IntArray, SamplingParams, TokenLogprob

_MASK = float("-inf")
# Below this the division by the temperature overflows; the result is greedy anyway.
_COLD = 1e-5
# The nucleus almost always lies within this many tokens; a full sort is the fallback.
_NUCLEUS = 256


@dataclass(slots=True, kw_only=True)
class SampleState:
    """What sampling needs to know of one choice in flight.

    `output_ids` grows as tokens are accepted (by the caller; the sampler only reads it).
    `index` tells the choices of one request apart. `allowed`: bool `[vocab]`, tokens that may
    come next, or None for all. `matcher`: of a choice with a grammar; it says what is allowed, and
    has the last word on what was chosen.
    """

    params: SamplingParams
    prompt_ids: IntArray
    output_ids: list[int]
    eos_ids: frozenset[int] = frozenset()
    generator: torch.Generator | None = None
    index: int = 0
    allowed: torch.Tensor | None = None
    matcher: Matcher | None = None
    opener_scores: tuple[float, float] | None = None
    _prompt_seen: torch.Tensor | None = field(default=None, repr=False)

    def draw(self) -> float:
        """The next number in [0, 1) of this choice's own stream."""
        if self.generator is None:
            self.generator = torch.Generator()
            seed = self.params.seed
            if seed is None:
                self.generator.seed()
            else:
                mixed = np.random.SeedSequence([seed % 2**64, self.index]).generate_state(
                    1, np.uint64
                )
                self.generator.manual_seed(int(mixed[0] >> np.uint64(1)))
        return float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def prompt_seen(self) -> torch.Tensor:
        """Distinct ids of the prompt, int64."""
        if self._prompt_seen is None:
            self._prompt_seen = torch.from_numpy(np.unique(self.prompt_ids)).long()
        return self._prompt_seen


@dataclass(frozen=True, slots=True)
class Sampled:
    """One accepted token; `logprob` when the request asked for it."""

    token_id: int
    logprob: TokenLogprob | None = None


class Draft(Protocol):
    """Tokens that are being chosen on a device. `tokens`: int32 `[n]`, there, in the order of the stream
    that computes."""

    @property
    def tokens(self) -> torch.Tensor: ...

    @property
    def sent(self) -> Event:
        """Behind the step and what it gave."""
        ...

    def read(self) -> list[int]:
        """The tokens. Waits for them."""
        ...


class Sampler:
    """Stateless but for the vocabulary's size; all state is in `SampleState`."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, states: Sequence[SampleState]) -> list[Sampled]:
        """logits: float32 `[len(states), vocab]`, left as they are. One `Sampled` a row."""
        if logits.shape[0] != len(states):
            raise ValueError(f"{logits.shape[0]} rows of logits for {len(states)} states")
        if not states:
            return []
        plain = [is_plain(s) and is_greedy(s) for s in states]
        chosen = logits.argmax(dim=-1).tolist() if any(plain) else [0] * len(states)
        for row, state in enumerate(states):
            if state.matcher is not None:
                chosen[row] = _settle(logits[row], state, state.matcher)
            elif not plain[row]:
                chosen[row] = _choose(logits[row], state)
        return [
            Sampled(token, logprob(logits[row], token, state.params.logprobs))
            for row, (token, state) in enumerate(zip(chosen, states, strict=True))
        ]

    def draft(self, logits: torch.Tensor, states: Sequence[SampleState]) -> Draft | None:
        """Choose without waiting; None where the host has to see something first. May be called while
        the last draft is not read yet."""
        return None


def score_prompt(logits: torch.Tensor, targets: IntArray, top: int) -> list[TokenLogprob]:
    """Log-probabilities of the tokens that really followed.

    logits: float32 `[n, vocab]`; targets: int32 `[n]`, the token after each row's position.
    """
    return [
        found
        for row, token in enumerate(targets.tolist())
        if (found := logprob(logits[row], token, top)) is not None
    ]


def is_greedy(state: SampleState) -> bool:
    """The largest logit wins."""
    return state.params.temperature < _COLD or state.params.top_k == 1


def is_plain(state: SampleState) -> bool:
    """Nothing changes the logits but temperature, top-k, top-p and min-p."""
    p = state.params
    return (
        state.allowed is None
        and state.matcher is None
        and not p.logit_bias
        and p.repetition_penalty == 1.0
        and p.presence_penalty == 0.0
        and p.frequency_penalty == 0.0
        and len(state.output_ids) >= p.min_tokens
    )


def _settle(raw: torch.Tensor, state: SampleState, matcher: Matcher) -> int:
    """Choose until the grammar takes it; each refusal leaves less to choose from."""
    state.allowed = matcher.allowed
    grammar = state.params.grammar
    if grammar is not None and grammar.opener is not None and not state.output_ids:
        token, bias = grammar.opener
        logs = torch.log_softmax(raw.float(), dim=-1)
        others = logs.masked_fill(~matcher.allowed, _MASK)
        others[token] = _MASK
        state.opener_scores = float(logs[token]), float(others.max())
        raw = raw.clone()
        raw[token] += bias
    while True:
        taken = matcher.settle(_choose(raw, state))
        if taken is not None:
            return taken


def _choose(raw: torch.Tensor, state: SampleState) -> int:
    p = state.params
    x = _shaped(raw, state)
    if is_greedy(state):
        return int(x.argmax())
    prob, ids = _candidates(x / p.temperature, p.top_k, p.top_p)
    if p.min_p > 0.0:
        prob = prob.masked_fill(prob < p.min_p * prob.max(), 0.0)
    total = prob.cumsum(0)
    mark = state.draw() * float(total[-1])
    at = int(torch.searchsorted(total, torch.tensor(mark, dtype=total.dtype), right=True))
    if at >= len(total) or prob[at] == 0:  # the draw was rounded onto the upper end
        at = int((prob > 0).nonzero()[-1])
    return at if ids is None else int(ids[at])


def _candidates(
    x: torch.Tensor, top_k: int, top_p: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights (float64, not normalised) of the tokens that top-k and top-p leave, and their ids;
    None for the ids when it is the whole vocabulary in order (which needs no sorting)."""
    size = x.shape[0]
    if 0 < top_k < size:
        values, ids = x.topk(top_k)
    elif top_p < 1.0:
        values, ids = x.topk(min(_NUCLEUS, size))
    else:
        return torch.softmax(x, dim=-1).double(), None
    cut = len(values) < size and not 0 < top_k < size
    prob = torch.softmax(values.double(), dim=-1)
    if cut:  # shares of the whole vocabulary, not of the part that was sorted
        prob *= torch.exp(values.double().logsumexp(0) - x.double().logsumexp(0))
        if float(prob.sum()) < top_p:
            values, ids = x.sort(descending=True, stable=True)
            prob = torch.softmax(values.double(), dim=-1)
    before = prob.cumsum(0) - prob
    return prob.masked_fill(before >= top_p, 0.0), ids  # keeps the token that crosses the line


def _shaped(raw: torch.Tensor, state: SampleState) -> torch.Tensor:
    """A copy of the logits with masks, bias and penalties applied."""
    p, x = state.params, raw.clone()
    size = x.shape[0]
    if p.logit_bias:
        ids = torch.tensor([i for i in p.logit_bias if 0 <= i < size], dtype=torch.long)
        x[ids] += torch.tensor([v for i, v in p.logit_bias.items() if 0 <= i < size])
    output = torch.tensor(state.output_ids, dtype=torch.long)
    if p.repetition_penalty != 1.0:
        seen = torch.cat((state.prompt_seen(), output)).unique()
        old = x[seen]
        x[seen] = torch.where(old > 0, old / p.repetition_penalty, old * p.repetition_penalty)
    if len(output) and (p.presence_penalty or p.frequency_penalty):
        ids, counts = output.unique(return_counts=True)
        x[ids] -= p.presence_penalty + p.frequency_penalty * counts.float()
    if len(state.output_ids) < p.min_tokens:
        banned = [i for i in (*state.eos_ids, *p.stop_token_ids) if 0 <= i < size]
        x[banned] = _MASK
    if state.allowed is not None:
        x[~state.allowed[:size]] = _MASK
    return x


def logprob(raw: torch.Tensor, token: int, top: int | None) -> TokenLogprob | None:
    """Of a token, by raw logits `[vocab]`, with the `top` best beside it; None when `top` is."""
    if top is None:
        return None
    logs = torch.log_softmax(raw.float(), dim=-1)
    best: tuple[tuple[int, float], ...] = ()
    if top:
        values, ids = logs.topk(min(top, logs.shape[0]))
        best = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprob(token, float(logs[token]), best)
