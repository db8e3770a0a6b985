"""Sampling where the logits are: the same tokens as on the host, each row by its own way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.run.device_sampler import DeviceDraft, DeviceSampler
from agentkv.engine.run.sampler import Sampled, Sampler, SampleState
from agentkv.engine.types import SamplingParams
from agentkv.kernels.sampling import sample as kernel
from agentkv.kernels.sampling import sample_reference
from tests.engine.run.fake_device import POISON, FakeDevice

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
        found = DeviceSampler(VOCAB, FakeDevice()).sample(x, states(seed, order))
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
    DeviceSampler(VOCAB, FakeDevice()).sample(
        logits(7), [state(i, **k) for i, k in enumerate(KINDS[:7])]
    )
    assert seen == []
    DeviceSampler(VOCAB, FakeDevice()).sample(
        logits(11), [state(i, **k) for i, k in enumerate(KINDS)]
    )
    assert seen == [4]


def test_a_seed_draws_the_same_alone_and_in_a_batch() -> None:
    x = logits(6)
    together = DeviceSampler(VOCAB, FakeDevice()).sample(
        x, [state(i, temperature=1.0) for i in range(6)]
    )
    alone = [
        DeviceSampler(VOCAB, FakeDevice()).sample(x[i : i + 1], [state(i, temperature=1.0)])
        for i in range(6)
    ]
    assert together == [one for [one] in alone]


def test_the_shares_are_those_of_the_model() -> None:
    x = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]]).repeat(4000, 1)
    some = [state(i, temperature=1.0) for i in range(4000)]
    found = Counter(s.token_id for s in DeviceSampler(4, FakeDevice()).sample(x, some))
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
    DeviceSampler(VOCAB, FakeDevice()).sample(logits(1), [state(temperature=1.0)])
    assert float(drawn[0]) < 1


def test_rows_and_states_must_match() -> None:
    with pytest.raises(ValueError, match="2 rows of logits for 1 states"):
        DeviceSampler(VOCAB, FakeDevice()).sample(logits(2), [state()])
    assert DeviceSampler(VOCAB, FakeDevice()).sample(logits(0), []) == []


def test_a_draft_is_read_when_it_has_come() -> None:
    device = FakeDevice()
    sampler = DeviceSampler(VOCAB, device)
    x, y = logits(3, 1), logits(2, 2)
    one = sampler.draft(x, [state(temperature=0)] * 3)
    assert isinstance(one, DeviceDraft)
    poison = int.from_bytes(bytes([POISON] * 4), "little")
    assert one.host.tolist() == [poison] * 3, "nobody may look before it has come"
    two = sampler.draft(y, [state(temperature=0)] * 2)
    assert two is not None
    assert one.read() == x.argmax(-1).tolist() == one.tokens.tolist()
    assert two.read() == y.argmax(-1).tolist()
    nothing = sampler.draft(x[:0], [])
    assert nothing is not None and nothing.read() == []
    device.check()


def test_a_draft_is_what_sampling_gives() -> None:
    """Greedy rows among drawn ones, and as many numbers used up."""
    kinds = [KINDS[i] for i in (0, 2, 4, 6, 5)]
    sampler = DeviceSampler(VOCAB, FakeDevice())
    drawn = [state(i, **kind) for i, kind in enumerate(kinds)]
    sampled = [state(i, **kind) for i, kind in enumerate(kinds)]
    for seed in range(4):
        x = logits(len(kinds), seed)
        draft = sampler.draft(x, drawn)
        assert draft is not None
        assert draft.read() == [s.token_id for s in sampler.sample(x, sampled)]


@pytest.mark.parametrize("kind", [KINDS[i] for i in (1, 3, 7, 8, 9, 10)])
def test_no_draft_where_the_host_must_see_something(kind: dict[str, Any]) -> None:
    sampler = DeviceSampler(VOCAB, FakeDevice())
    assert sampler.draft(logits(2), [state(temperature=0), state(**kind)]) is None
