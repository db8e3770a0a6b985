"""Whose prompt tokens share a step."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from agentkv.engine.sched.budget import Budget
from agentkv.engine.sched.request import Status
from agentkv.engine.sched.scheduler import Step
from tests.engine.sched.conftest import Device

Make = Callable[..., Device]


def text(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(50), k=count)


def prompts(step: Step | None) -> list[tuple[str, int]]:
    assert step is not None
    return [(w.request.id, w.count) for w in step.works if w.prefill]


def test_a_prompt_that_ends_has_its_step_to_itself(device: Make) -> None:
    d = device(1000, max_batch_tokens=100, fixed_tokens=8)
    first, second = d.submit(text(1, 40), 5), d.submit(text(2, 30), 5)
    assert prompts(d.step()) == [(first.id, 40)]
    assert prompts(d.step()) == [(second.id, 30)]
    d.drain()
    assert first.output.tolist() == d.alone(text(1, 40), 5)
    assert second.output.tolist() == d.alone(text(2, 30), 5)


def test_where_tokens_are_free_they_are_packed(device: Make) -> None:
    d = device(1000, max_batch_tokens=100)
    first, second, third = (d.submit(text(seed, 40), 5) for seed in (1, 2, 3))
    assert prompts(d.step()) == [(first.id, 40), (second.id, 40), (third.id, 20)]


def test_a_few_tokens_take_others_along(device: Make) -> None:
    """Three tokens put one prompt off by less than a step of their own would put off those behind."""
    d = device(1000, max_batch_tokens=100, fixed_tokens=8)
    few = [d.submit(text(seed, 3), 2) for seed in (1, 2, 3)]
    assert prompts(d.step()) == [(r.id, 3) for r in few]


def test_the_more_wait_the_more_are_packed(device: Make) -> None:
    """20 tokens for a prompt that ends: too many for one who waits, not for four."""
    for waiting, together in ((1, 1), (2, 1), (3, 2), (8, 3)):
        d = device(4000, max_batch_tokens=200, fixed_tokens=8)
        for seed in range(1 + waiting):
            d.submit(text(seed, 20), 1)
        assert len(prompts(d.step())) == together, waiting


def test_the_rest_of_a_prompt_waits_for_nobody(device: Make) -> None:
    """The second chunk is its last: who waits comes in the step after it."""
    d = device(1000, max_batch_tokens=40, fixed_tokens=8)
    first, second = d.submit(text(1, 50), 5), d.submit(text(2, 50), 5)
    assert prompts(d.step()) == [(first.id, 40)]
    assert prompts(d.step()) == [(first.id, 10)]
    assert first.sampled == 1
    assert prompts(d.step()) == [(second.id, 20)], "half of a step while others decode"


@pytest.mark.parametrize(("most", "fixed", "decoding", "left"), [
    (512, None, 0, 512), (512, None, 500, 12), (512, None, 4, 508),
    (512, 32, 0, 512), (512, 32, 1, 256), (512, 32, 300, 212), (40, 32, 4, 32), (16, 32, 4, 12),
])  # fmt: skip
def test_how_much_a_step_may_take(most: int, fixed: int | None, decoding: int, left: int) -> None:
    assert Budget.of(most, fixed, decoding).left == left


def test_decoding_requests_may_fill_a_step(device: Make) -> None:
    """Then prompts wait until some of them have ended, and come."""
    d = device(1000, max_batch_tokens=4, fixed_tokens=2, max_running=8)
    talking = [d.submit([seed], 6) for seed in range(4)]
    last = d.submit(text(9, 12), 2)
    d.drain()
    assert all(r.status is Status.FINISHED for r in [*talking, last])
    assert last.output.tolist() == d.alone(text(9, 12), 2)


@pytest.mark.parametrize("fixed", [None, 8])
def test_a_short_prompt_goes_by_a_long_one(device: Make, fixed: int | None) -> None:
    d = device(4000, max_batch_tokens=64, fixed_tokens=fixed)
    long = d.submit(text(1, 1000), 1)
    d.step()
    short = d.submit(text(2, 30), 1)
    step = d.step()
    expected = [(short.id, 30)] if fixed else [(short.id, 30), (long.id, 34)]
    assert prompts(step) == expected and short.status is Status.FINISHED
    # Whom a step passed over for it comes first in the next.
    d.submit(text(3, 30), 1)
    step = d.step()
    assert prompts(step)[0][0] == (long.id if fixed else "r3")


@pytest.mark.parametrize("fixed", [None, 8])
def test_short_prompts_without_end_do_not_starve_a_long_one(
    device: Make, fixed: int | None
) -> None:
    d = device(4000, max_batch_tokens=64, fixed_tokens=fixed, max_running=4)
    long = d.submit(text(1, 640), 1)
    d.step()
    steps, waits = 1, []
    asked: dict[str, int] = {}
    while long.status is not Status.FINISHED:
        if steps % 2:
            asked[d.submit(text(100 + steps, 40), 1).id] = steps
        waits += [steps - asked[name] for name, _ in prompts(d.step()) if name in asked]
        steps += 1
        assert steps < 25, "the long prompt starves"
    assert len(waits) > 5 and max(waits) <= 1
    assert long.output.tolist() == d.alone(text(1, 640), 1)


def test_two_long_prompts_are_not_taken_turns_with(device: Make) -> None:
    """The one that is nearer to its end goes on; the other comes when it has ended."""
    d = device(4000, max_batch_tokens=50, fixed_tokens=8)
    first, second = d.submit(text(1, 200), 1), d.submit(text(2, 200), 1)
    seen = [prompts(d.step()) for _ in range(8)]
    assert seen == [[(first.id, 50)]] * 4 + [[(second.id, 50)]] * 4
