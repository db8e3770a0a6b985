"""Sampling: the settings do what they say, and a request's tokens are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.run.sampler import Sampler, SampleState, score_prompt
from agentkv.engine.types import SamplingParams

VOCAB = 50


def state(
    prompt: list[int] | None = None, output: list[int] | None = None, **options: Any
) -> SampleState:
    extra = {k: options.pop(k) for k in ("eos_ids", "index", "allowed") if k in options}
    return SampleState(
        params=SamplingParams(**options),
        prompt_ids=np.array(prompt or [], dtype=np.int32),
        output_ids=list(output or []),
        **extra,
    )


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(2)) * 2


def one(logits: torch.Tensor, s: SampleState) -> int:
    return Sampler(VOCAB).sample(logits[None], [s])[0].token_id


def shares(logits: torch.Tensor, draws: int = 4000, **options: Any) -> torch.Tensor:
    s = state(seed=11, **options)
    counts = torch.zeros(VOCAB)
    for _ in range(draws):
        counts[one(logits, s)] += 1
    return counts / draws


def test_greedy_takes_the_largest_and_leaves_the_logits_alone(logits: torch.Tensor) -> None:
    before = logits.clone()
    assert one(logits, state(temperature=0)) == int(logits.argmax())
    assert one(logits, state(temperature=0, logit_bias={3: -50.0})) != 3
    assert torch.equal(before, logits)


def test_draws_follow_the_softmax(logits: torch.Tensor) -> None:
    for temperature in (0.5, 1.0):
        expected = torch.softmax(logits / temperature, -1)
        # Four standard deviations of the largest share at 4,000 draws are about 0.032.
        assert float((shares(logits, temperature=temperature) - expected).abs().max()) < 0.032


@pytest.mark.parametrize(
    ("options", "kept"), [({"top_k": 3}, 3), ({"min_p": 0.5}, None), ({"top_p": 0.6}, None)]
)
def test_cuts_keep_exactly_the_tokens_they_should(
    logits: torch.Tensor, options: dict[str, Any], kept: int | None
) -> None:
    prob, order = torch.softmax(logits, -1).sort(descending=True)
    if "min_p" in options:
        kept = int((prob >= 0.5 * prob[0]).sum())
    elif "top_p" in options:
        kept = int((prob.cumsum(0) < 0.6).sum()) + 1
    assert kept is not None and kept < VOCAB // 2
    found = shares(logits, draws=2000, **options)
    assert set(found.nonzero().ravel().tolist()) <= set(order[:kept].tolist())
    renormalised = prob[:kept] / prob[:kept].sum()
    assert float((found[order[:kept]] - renormalised).abs().max()) < 0.05


def test_top_p_of_almost_nothing_is_greedy(logits: torch.Tensor) -> None:
    s = state(top_p=1e-6, seed=1)
    assert {one(logits, s) for _ in range(20)} == {int(logits.argmax())}


def test_penalties_change_the_logits_as_documented() -> None:
    flat = torch.zeros(VOCAB)
    flat[7], flat[8], flat[9] = 2.0, 1.9, 1.0
    assert one(flat, state(temperature=0)) == 7
    assert one(flat, state(temperature=0, repetition_penalty=1.2, prompt=[7])) == 8
    assert (
        one(flat, state(temperature=0, presence_penalty=0.2, prompt=[7])) == 7
    )  # the prompt does not count
    assert one(flat, state(temperature=0, presence_penalty=0.2, output=[7])) == 8
    assert one(flat, state(temperature=0, frequency_penalty=0.06, output=[7])) == 7
    assert one(flat, state(temperature=0, frequency_penalty=0.06, output=[7, 7])) == 8
    negative = -torch.ones(VOCAB)
    negative[7] = -0.9
    assert one(negative, state(temperature=0, repetition_penalty=1.5, prompt=[7])) != 7


def test_min_tokens_bans_the_ends_until_then(logits: torch.Tensor) -> None:
    top = int(logits.argmax())
    second = int(logits.topk(2).indices[1])
    assert (
        one(logits, state(temperature=0, min_tokens=2, output=[1], eos_ids=frozenset({top})))
        == second
    )
    assert (
        one(logits, state(temperature=0, min_tokens=1, output=[1], eos_ids=frozenset({top}))) == top
    )
    assert one(logits, state(temperature=0, min_tokens=2, stop_token_ids=(top,))) == second


def test_the_mask_leaves_only_what_it_allows(logits: torch.Tensor) -> None:
    allowed = torch.zeros(VOCAB, dtype=torch.bool)
    allowed[[4, 31]] = True
    s = state(seed=3, allowed=allowed)
    assert {one(logits, s) for _ in range(50)} <= {4, 31}


def test_a_seed_repeats_and_neighbours_do_not_matter(logits: torch.Tensor) -> None:
    def run(neighbours: int) -> list[int]:
        mine = state(seed=42, temperature=1.0)
        rest = [state(seed=i, temperature=1.3, top_k=5) for i in range(neighbours)]
        rows = logits.repeat(neighbours + 1, 1)
        return [Sampler(VOCAB).sample(rows, [*rest, mine])[-1].token_id for _ in range(30)]

    alone = run(0)
    assert alone == run(0) == run(5)
    assert len(set(alone)) > 3
    other = state(seed=43, temperature=1.0)
    assert [one(logits, other) for _ in range(30)] != alone


def test_choices_of_one_seed_differ_but_repeat(logits: torch.Tensor) -> None:
    def run(index: int) -> list[int]:
        s = state(seed=9, index=index)
        return [one(logits, s) for _ in range(25)]

    assert run(0) != run(1)
    assert run(1) == run(1)


def test_logprobs_are_those_of_the_raw_logits(logits: torch.Tensor) -> None:
    s = state(temperature=0, logprobs=3, logit_bias={5: 100.0})
    got = Sampler(VOCAB).sample(logits[None], [s])[0]
    logs = torch.log_softmax(logits, -1)
    assert got.token_id == 5
    assert got.logprob is not None
    assert got.logprob.logprob == pytest.approx(float(logs[5]))
    assert [i for i, _ in got.logprob.top] == logits.topk(3).indices.tolist()
    assert Sampler(VOCAB).sample(logits[None], [state(temperature=0)])[0].logprob is None
    none = Sampler(VOCAB).sample(logits[None], [state(temperature=0, logprobs=0)])[0].logprob
    assert none is not None and none.top == ()


def test_prompt_scores(logits: torch.Tensor) -> None:
    rows = torch.stack((logits, -logits))
    got = score_prompt(rows, np.array([7, 8], dtype=np.int32), 2)
    logs = torch.log_softmax(rows, -1)
    assert [g.token_id for g in got] == [7, 8]
    assert [g.logprob for g in got] == pytest.approx([float(logs[0, 7]), float(logs[1, 8])])
    assert len(got[0].top) == 2


def test_empty_and_mismatched_batches() -> None:
    assert Sampler(VOCAB).sample(torch.zeros(0, VOCAB), []) == []
    with pytest.raises(ValueError, match="rows of logits"):
        Sampler(VOCAB).sample(torch.zeros(2, VOCAB), [state()])


def test_a_flat_nucleus_beyond_the_first_tokens_is_complete() -> None:
    size = 2000
    flat = torch.zeros(size)
    flat[:10] = -20.0
    sampler, s = Sampler(size), state(seed=5, top_p=0.5)
    found = {sampler.sample(flat[None], [s])[0].token_id for _ in range(3000)}
    # Half of 1,990 equal tokens: far more than the part that is sorted first.
    assert 700 < len(found) <= 996
    assert not found & set(range(10))
