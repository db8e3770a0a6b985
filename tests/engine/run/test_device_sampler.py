"""Sampling where the logits are: the same tokens as on the host, each row by its own way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.run.device_sampler import DeviceSampler
from agentkv.engine.run.sampler import Sampled, Sampler, SampleState
from agentkv.engine.types import SamplingParams
from agentkv.kernels.sampling import sample as kernel
from agentkv.kernels.sampling import sample_reference

VOCAB = 50


def state(seed: int = 0, output: list[int] | None = None, **params: Any) -> SampleState:
    return SampleState(
        params=SamplingParams(seed=seed, **params),
        prompt_ids=np.array([1, 2, 3], dtype=np.int32),
        output_ids=output or [],
    )


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5, "logprobs": 0},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.1, "top_k": 20},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 0, "repetition_penalty": 1.5},
    {"temperature": 1.0, "presence_penalty": 1.0, "logprobs": 2},
    {"temperature": 0, "logit_bias": {7: 30.0}},
    {"temperature": 0, "min_tokens": 2},
]


def states(seed: int, order: range) -> list[SampleState]:
    kinds = [KINDS[i] for i in order]
    return [state(seed, [4, 5, 4] if "penalty" in str(kind) else [], **kind) for kind in kinds]


@pytest.mark.parametrize("order", [range(len(KINDS)), range(len(KINDS))[::-1]])
def test_rows_of_every_kind_at_once(order: range) -> None:
    sorts = [i for i in order if {"top_k", "top_p"} & set(KINDS[i]) and KINDS[i].get("top_k") != 1]
    for seed in range(5):
        x = logits(len(KINDS), seed)
        before = x.clone()
        found = DeviceSampler(VOCAB).sample(x, states(seed, order))
        expected = Sampler(VOCAB).sample(x, states(seed, order))
        assert torch.equal(x, before)
        for row, i in enumerate(order):
            if i not in sorts:
                assert found[row] == expected[row], KINDS[i]
                continue
            p = SamplingParams(**KINDS[i])
            one = torch.tensor([p.temperature]), torch.tensor([p.top_k], dtype=torch.int32)
            rest = torch.tensor([p.top_p]), torch.tensor([p.min_p])
            draw = torch.tensor([state(seed, **KINDS[i]).draw()])
            token = int(sample_reference(x[row : row + 1], *one, *rest, draw.float()))
            assert found[row].token_id == token
            scores = found[row].logprob
            assert (scores is None) == (p.logprobs is None)
            if scores is not None:
                right = float(torch.log_softmax(x[row], -1)[token])
                assert scores.logprob == pytest.approx(right, abs=1e-6)


def test_only_what_needs_the_host_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = Sampler.sample

    def watched(self: Sampler, x: torch.Tensor, states: Any) -> list[Sampled]:
        seen.append(len(states))
        return original(self, x, states)

    monkeypatch.setattr(Sampler, "sample", watched)
    DeviceSampler(VOCAB).sample(logits(7), [state(i, **k) for i, k in enumerate(KINDS[:7])])
    assert seen == []
    DeviceSampler(VOCAB).sample(logits(11), [state(i, **k) for i, k in enumerate(KINDS)])
    assert seen == [4]


def test_a_seed_draws_the_same_alone_and_in_a_batch() -> None:
    x = logits(6)
    together = DeviceSampler(VOCAB).sample(x, [state(i, temperature=1.0) for i in range(6)])
    alone = [
        DeviceSampler(VOCAB).sample(x[i : i + 1], [state(i, temperature=1.0)]) for i in range(6)
    ]
    assert together == [one for [one] in alone]


def test_the_shares_are_those_of_the_model() -> None:
    x = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]]).repeat(4000, 1)
    some = [state(i, temperature=1.0) for i in range(4000)]
    found = Counter(s.token_id for s in DeviceSampler(4).sample(x, some))
    for token, share in enumerate(torch.softmax(x[0], 0).tolist()):
        assert abs(found[token] / 4000 - share) < 0.03


def test_a_draw_never_rounds_up_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SampleState, "draw", lambda self: 1 - 2.0**-60)
    drawn: list[torch.Tensor] = []
    original = kernel

    def watched(*arguments: torch.Tensor) -> torch.Tensor:
        drawn.append(arguments[-1])
        return original(*arguments)

    monkeypatch.setattr("agentkv.engine.run.device_sampler.sample", watched)
    DeviceSampler(VOCAB).sample(logits(1), [state(temperature=1.0)])
    assert float(drawn[0]) < 1


def test_rows_and_states_must_match() -> None:
    with pytest.raises(ValueError, match="2 rows of logits for 1 states"):
        DeviceSampler(VOCAB).sample(logits(2), [state()])
    assert DeviceSampler(VOCAB).sample(logits(0), []) == []
