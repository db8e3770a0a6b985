"""A step that is planned while the one before it runs: what it may count on, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentkv.engine.sched.request import Request, Status, unknown
from agentkv.engine.sched.scheduler import Step
from tests.engine.sched.conftest import Device

Make = Callable[..., Device]
PROMPT = list(range(5, 45))


def plan(device: Device) -> tuple[Step, list[int | None]]:
    """Planned and run, not committed."""
    step = device.scheduler.schedule()
    assert step is not None
    return step, device.run(step)


def commit(device: Device, planned: tuple[Step, list[int | None]]) -> list[Request]:
    ended = device.scheduler.commit(*planned)
    device.scheduler.check(deep=True)
    return ended


def test_the_next_step_starts_from_a_token_that_is_not_known(device: Make) -> None:
    d = device(400)
    first, second = d.submit(PROMPT, 5), d.submit(PROMPT[::-1], 5)
    one = plan(d)
    two = plan(d)
    assert [w.start for w in two[0].works] == [40, 40]
    assert two[0].batch.input_ids.tolist() == [unknown(0), unknown(1)]
    assert (first.known, first.length, first.sampled) == (40, 42, 2)
    assert commit(d, one) == []
    assert (first.known, first.length) == (41, 42) and first.output.tolist() == [one[1][0]]
    commit(d, two)
    d.drain()
    assert first.output.tolist() == d.alone(PROMPT, 5)
    assert second.output.tolist() == d.alone(PROMPT[::-1], 5)


def test_nothing_is_planned_behind_a_last_token(device: Make) -> None:
    d = device(400)
    d.submit(PROMPT, 1)
    d.submit(PROMPT[::-1], 0)
    one = plan(d)
    assert d.scheduler.schedule() is None
    assert len(commit(d, one)) == 2 and d.scheduler.idle


@pytest.mark.parametrize("page", [1, 4])
def test_a_request_that_ended_before_ends_once(device: Make, page: int) -> None:
    """Its stop token comes while the next step has it in it."""
    d = device(400, page)
    stop = d.alone(PROMPT, 3)
    stays = d.submit(PROMPT[::-1], 6)
    goes = d.submit(PROMPT, 9, stop_ids=frozenset(stop[2:]))
    steps = [plan(d), plan(d)]
    ended: list[Request] = []
    for _ in range(4):
        ended += commit(d, steps.pop(0))
        if goes.status is Status.FINISHED:
            break
        steps.append(plan(d))
    assert ended == [goes] and goes in [w.request for w in steps[0][0].works]
    assert goes.output.tolist() == stop and goes.allocated == 0
    free = d.cache.available_pages
    assert goes not in commit(d, steps.pop(0))
    assert goes.output.tolist() == stop and goes.length == goes.known
    assert d.cache.available_pages == free
    d.drain()
    assert stays.output.tolist() == d.alone(PROMPT[::-1], 6)


def test_pages_of_a_request_that_ended_are_used_behind_its_last_step(device: Make) -> None:
    """What its useless last step wrote is written over, in order."""
    d = device(48)
    stop = d.alone(PROMPT, 2)
    goes = d.submit(PROMPT, 8, stop_ids=frozenset(stop))
    one, two = plan(d), plan(d)
    commit(d, one)
    assert goes.status is Status.FINISHED
    other = d.submit([*range(60, 107)], 1)  # needs all there is
    three = plan(d)
    commit(d, two)
    commit(d, three)
    d.drain()
    assert other.output.tolist() == d.alone([*range(60, 107)], 1)


def test_a_prefix_under_way_is_waited_for(device: Make) -> None:
    """Its last chunk runs; who needs the same prefix does not compute it again."""
    d = device(400)
    d.submit(PROMPT, 4)
    one = plan(d)
    second = d.submit(PROMPT, 4)
    two = plan(d)
    assert second.status is Status.WAITING
    commit(d, one)
    three = plan(d)
    assert second.status is Status.RUNNING and second.cached_tokens == 39
    commit(d, two)
    commit(d, three)


def test_an_abort_in_flight_is_not_planned_again(device: Make) -> None:
    d = device(400)
    request, other = d.submit(PROMPT, 9), d.submit(PROMPT[::-1], 9)
    one = plan(d)
    assert d.scheduler.abort(request)
    two = plan(d)
    assert [w.request for w in two[0].works] == [other]
    assert commit(d, one) == [request]
    assert request.finish_reason == "abort" and request.output.tolist() == []
    commit(d, two)
    d.drain()


def test_nobody_is_taken_back_while_a_step_runs(device: Make) -> None:
    d = device(132)
    requests = [d.submit([*range(n, n + 30)], 40) for n in (1, 101)]
    waited = False
    last = plan(d)
    while not d.scheduler.idle:
        step = d.scheduler.schedule()
        after = None if step is None else (step, d.run(step))
        if after is None and any(not r.exhausted for r in d.scheduler.running):
            waited = True
            assert d.scheduler.retractions == 0
        commit(d, last)
        if d.scheduler.idle:
            break
        last = after or plan(d)
        if d.scheduler.retractions:
            break
    assert waited and d.scheduler.retractions == 1
    commit(d, last)
    d.drain()
    for request in requests:
        assert request.output.tolist() == d.alone(request.ids[:30].tolist(), 40)


def test_a_step_that_fails_takes_the_one_behind_it_along(device: Make) -> None:
    d = device(400)
    request = d.submit(PROMPT, 9)
    one, two = plan(d), plan(d)
    d.scheduler.drop(one[0])
    assert request.finish_reason == "abort" and request.output.tolist() == []
    assert commit(d, two) == []
    assert d.scheduler.idle and d.cache.private_pages == 0
    assert d.cache.peek(d.request(PROMPT)) == 0, "nothing of it was published"


def test_two_steps_at_most(device: Make) -> None:
    d = device(400)
    d.submit(PROMPT, 9)
    plan(d), plan(d)
    with pytest.raises(AssertionError):
        d.scheduler.schedule()
