"""What schedulers of prefix caches got wrong, one test a bug. Names refer to the invariants."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from agentkv.engine.errors import PoolTooSmall
from agentkv.engine.sched.request import Status

Make = Callable[..., Any]
PAGES = pytest.mark.parametrize("page", [1, 16])


def text(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(50), k=count)


@PAGES
def test_two_identical_prompts_at_once_decode_as_if_alone(device: Make, page: int) -> None:
    """B, J: neither reads pages that the other freed or has not written."""
    d = device(256, page)
    prompt = text(1, 40)
    pair = [d.submit(prompt, 50) for _ in range(2)]
    d.drain()
    for request in pair:
        assert request.output.tolist() == d.alone(prompt, 50)
    assert pair[0].cached_tokens == 0
    assert pair[1].cached_tokens == 39 // page * page, "the second waits for the first one's pages"


def test_duplicates_stay_private_until_their_request_ends(device: Make) -> None:
    """B: both compute the same tokens when following is not worth it; the row never changes."""
    d = device(200)
    prompt = text(1, 20)  # below FOLLOW_TOKENS for a partial prefix
    a, b = d.submit([*prompt, *text(2, 30)], 30), d.submit([*prompt, *text(3, 30)], 30)
    d.step()
    assert a.cached_tokens == b.cached_tokens == 0
    row = b.slots[: b.allocated].copy()
    while b.status is not Status.FINISHED:
        d.step()
        assert (b.slots[: len(row)] == row).all() or b.status is Status.FINISHED
    d.drain()
    assert b.output.tolist() == d.alone([*prompt, *text(3, 30)], 30)


@PAGES
@pytest.mark.parametrize("pages", [1, 2, 3])
def test_a_fully_cached_prompt_recomputes_its_end(device: Make, page: int, pages: int) -> None:
    """H: a prompt of exactly k pages, all of them cached."""
    d = device(64, page)
    prompt = text(3, pages * page)
    first = d.submit(prompt, 4)
    d.drain()
    again = d.submit(prompt, 4)
    d.drain()
    assert again.cached_tokens == (pages * page - 1) // page * page
    assert again.output.tolist() == first.output.tolist()


@PAGES
def test_the_shortest_prompts_work(device: Make, page: int) -> None:
    """H: one token; less than a page; the whole pool."""
    d = device(8 * page, page)
    for prompt in ([7], text(5, page + 1), text(6, 8 * page)):
        for expected in (0, (len(prompt) - 1) // page * page):
            d.cache.flush() if expected == 0 else None
            request = d.submit(prompt, 1)
            d.drain()
            assert request.cached_tokens == expected
            assert request.output.tolist() == d.alone(prompt, 1)


@PAGES
def test_turn_two_reuses_turn_ones_output(device: Make, page: int) -> None:
    """K: prompt and output are in the tree, without the last token, which has no K/V yet."""
    d = device(128, page)
    first = d.submit(text(1, 33), 20)
    d.drain()
    second = d.submit([*text(1, 33), *first.output.tolist(), 9, 9], 5)
    d.drain()
    assert second.cached_tokens == (33 + 19) // page * page


@PAGES
@pytest.mark.parametrize("state", ["queued", "chunk 1 of 3", "running", "in flight"])
def test_abort_in_every_state(device: Make, page: int, state: str) -> None:
    """G: pages come back, what was computed stays, and nobody else is disturbed."""
    d = device(256, page, max_batch_tokens=16, max_running=2)
    other = d.submit(text(8, 10), 40)
    victim = d.submit(text(2, 48), 20)
    if state == "queued":
        victims = [victim, d.submit(text(3, 10), 5)]
        d.scheduler.max_running = 1
        d.step()
        assert victims[1].status is Status.WAITING
        victim = victims[1]
    elif state == "chunk 1 of 3":
        d.step()
        d.step()
        assert victim.status is Status.RUNNING and 0 < victim.committed < 48
    elif state == "running":
        while victim.sampled < 3:
            d.step()
    if state == "in flight":
        while victim.sampled < 3:
            d.step()
        step = d.scheduler.schedule()
        assert any(w.request is victim for w in step.works)
        assert d.scheduler.abort(victim)
        assert victim.status is Status.RUNNING, "its result has not come yet"
        ended = d.scheduler.commit(step, d.run(step))
        assert victim in ended and victim.sampled == 3
    else:
        assert d.scheduler.abort(victim)
    assert victim.status is Status.FINISHED and victim.finish_reason == "abort"
    assert victim.handle is None
    assert not d.scheduler.abort(victim)
    d.scheduler.check(deep=True)
    d.drain()
    assert other.output.tolist() == d.alone(text(8, 10), 40)
    assert d.cache.tree.locked_tokens == d.cache.private_pages == 0


@PAGES
def test_an_aborted_prefill_leaves_its_whole_pages(device: Make, page: int) -> None:
    """B022: each retry of a client that gives up starts further than the last."""
    d = device(256, page, max_batch_tokens=32)
    prompt, reached = text(4, 200), []
    for _ in range(5):
        request = d.submit(prompt, 5)
        d.step()
        reached.append(request.cached_tokens)
        d.scheduler.abort(request)
    assert reached == [0, 32, 64, 96, 128]


def test_cached_tokens_are_fixed_at_first_admission(device: Make) -> None:
    """P: chunking, retraction and abort-and-retry never change them, nor exceed n - 1."""
    d = device(130, max_batch_tokens=64)
    d.submit(text(1, 20), 0)
    d.drain()
    d.scheduler._ratio = 0.0  # nothing is reserved: all are admitted, and the pool is too small
    requests = [d.submit([*text(1, 20), i, *text(i, 20)], 59) for i in range(4)]
    seen: dict[str, int] = {}
    while not d.scheduler.idle:
        d.step()
        for r in requests:
            if r.cached_tokens is not None:
                assert seen.setdefault(r.id, r.cached_tokens) == r.cached_tokens
                assert 0 <= r.cached_tokens <= r.prompt_len - 1
    assert d.scheduler.retractions > 0, "the pool was meant to be too small for all"
    for i, r in enumerate(requests):
        assert r.output.tolist() == d.alone([*text(1, 20), i, *text(i, 20)], 59)
        assert seen[r.id] == 20


def test_retraction_while_the_prefix_is_shared(device: Make) -> None:
    """C, D: the retracted request's prefix stays locked by the other one."""
    d = device(90)
    shared = text(1, 30)
    d.submit(shared, 0)
    d.drain()
    d.scheduler._ratio = 0.1
    a, b = d.submit([*shared, 1], 50), d.submit([*shared, 2], 50)
    while d.scheduler.retractions == 0 and not d.scheduler.idle:
        d.step()
    retracted, other = (a, b) if a.status is Status.WAITING else (b, a)
    assert retracted.status is Status.WAITING and other.status is Status.RUNNING
    assert retracted.handle is None and d.cache.tree.locked_tokens >= 30
    d.drain()
    assert a.output.tolist() == d.alone([*shared, 1], 50)
    assert b.output.tolist() == d.alone([*shared, 2], 50)


@PAGES
def test_flush_with_a_request_in_each_state(device: Make, page: int) -> None:
    """F: a handle from before the flush is never released into the new tree."""
    d = device(640, page, max_batch_tokens=16, max_running=3)
    d.submit(text(9, 32), 0)
    d.drain()
    decoding = d.submit(text(9, 40), 30)
    while decoding.sampled < 2:
        d.step()
    chunked = d.submit(text(9, 80), 5)
    d.step()
    d.scheduler.max_running = 2
    queued = d.submit(text(9, 20), 5)
    step = d.scheduler.schedule()
    d.cache.flush()
    d.scheduler.commit(step, d.run(step))
    d.scheduler.check(deep=True)
    after = d.submit(text(9, 40), 3)
    d.drain()
    for request, n, new in ((decoding, 40, 30), (chunked, 80, 5), (queued, 20, 5), (after, 40, 3)):
        assert request.output.tolist() == d.alone(text(9, n), new)
    assert d.cache.tree.locked_tokens == d.cache.private_pages == 0
    assert d.cache.available_pages == 640 // page


def test_an_impossible_request_is_refused_at_once_and_the_rest_finish(device: Make) -> None:
    """B010: six long ones on a pool for one and a half, plus one that can never fit."""
    d = device(150)
    requests = [d.submit(text(i, 90), 10) for i in range(6)]
    with pytest.raises(PoolTooSmall) as refused:
        d.submit(text(9, 140), 20)
    assert (refused.value.needed, refused.value.total) == (159, 150)
    d.drain(most=400)
    for i, r in enumerate(requests):
        assert r.output.tolist() == d.alone(text(i, 90), 10)


def test_a_failed_step_publishes_nothing(device: Make) -> None:
    """J: what was not computed is never found by the next one."""
    d = device(100)
    request = d.submit(text(1, 40), 5)
    d.scheduler.drop(d.scheduler.schedule())
    assert request.finish_reason == "abort"
    d.scheduler.check(deep=True)
    again = d.submit(text(1, 40), 5)
    d.drain()
    assert again.cached_tokens == 0
    assert again.output.tolist() == d.alone(text(1, 40), 5)


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight", "fcfs"])
def test_hot_traffic_does_not_starve_a_cold_request(device: Make, policy: str) -> None:
    """S: its wait is bounded while requests with long cached prefixes keep coming."""
    d = device(4000, policy=policy, max_running=2, max_batch_tokens=64)
    hot = text(1, 600)
    d.submit(hot, 0)
    d.drain()
    for i in range(4):
        d.submit([*hot, i], 3)
    cold = d.submit(text(2, 50), 3)
    steps = 0
    while cold.status is not Status.FINISHED:
        d.submit([*hot, steps % 50, steps // 50], 3)
        d.step()
        steps += 1
        assert steps < 400, "the cold request starves"


def test_longest_prefix_first(device: Make) -> None:
    d = device(4000, max_running=1)
    d.submit(text(1, 300), 0)
    d.drain()
    cold, warm = d.submit(text(2, 40), 2), d.submit([*text(1, 300), 1], 2)
    d.step()
    assert warm.status is Status.RUNNING and cold.status is Status.WAITING


def test_dfs_weight_runs_the_heavier_branch_first(device: Make) -> None:
    d = device(4000, max_running=1, policy="dfs-weight")
    for seed in (1, 2):
        d.submit(text(seed, 100), 0)
        d.drain()
    order = [d.submit([*text(seed, 100), i], 1) for i, seed in enumerate((1, 2, 1, 2, 2, 2))]
    ended: list[int] = []
    while not d.scheduler.idle:
        d.step()
        ended += [i for i, r in enumerate(order) if r.status is Status.FINISHED and i not in ended]
    assert ended == [1, 3, 4, 0, 2, 5], "the heavier branch first; at a tie, the one that ran last"


@PAGES
def test_a_shared_new_prefix_is_computed_once(device: Make, page: int) -> None:
    """S: eight at once; the first leads."""
    d = device(1000, page, max_batch_tokens=128)
    shared = text(1, 320)
    requests = [d.submit([*shared, i, i + 1], 4) for i in range(8)]
    d.drain()
    assert sorted(r.cached_tokens for r in requests)[1:] == [320] * 7
    assert d.computed == 322 + 7 * 2 + 8 * 3
    for i, r in enumerate(requests):
        assert r.output.tolist() == d.alone([*shared, i, i + 1], 4)


def test_when_the_leader_is_aborted_a_follower_takes_over(device: Make) -> None:
    d = device(2000, max_batch_tokens=64)
    shared = text(1, 400)
    leader, follower = d.submit([*shared, 1], 3), d.submit([*shared, 2], 3)
    d.step()
    assert follower.status is Status.WAITING
    d.scheduler.abort(leader)
    d.drain()
    assert follower.cached_tokens == 64
    assert follower.output.tolist() == d.alone([*shared, 2], 3)


@pytest.mark.parametrize("start", [0, 20, 39])
def test_prompt_logprobs_bound_the_hit(device: Make, start: int) -> None:
    """I: every wanted position is computed, and none before the first one is."""
    d = device(200)
    d.submit(text(1, 40), 0)
    d.drain()
    request = d.submit(text(1, 40), 1, score_from=start)
    step = d.scheduler.schedule()
    assert request.cached_tokens == max(0, start - 1)
    assert step.works[0].first_row == max(0, start - 1)
    assert step.batch.logit_rows.tolist() == list(range(40 - max(0, start - 1)))
    d.scheduler.commit(step, d.run(step))


def test_with_the_cache_off_nothing_is_reused_on_the_same_path(device: Make) -> None:
    d = device(200, cache={"enabled": False})
    for _ in range(2):
        request = d.submit(text(1, 40), 5)
        d.drain()
        assert request.cached_tokens == 0
        assert request.output.tolist() == d.alone(text(1, 40), 5)
    assert d.cache.tree.evictable_tokens == 0


def test_after_churn_a_hit_never_points_at_other_content(device: Make) -> None:
    """B002: a pool of 64 pages, a prefix of 40, an unrelated prompt of 60, twenty times over."""
    d = device(64)
    for i in range(20):
        first, second = d.submit(text(1, 40), 3), None
        d.drain()
        second = d.submit(text(1, 40), 3)
        d.drain()
        assert second.cached_tokens == 39
        assert first.output.tolist() == second.output.tolist() == d.alone(text(1, 40), 3)
        other = d.submit(text(100 + i, 60), 3)
        d.drain()
        assert other.cached_tokens <= 1
        third = d.cache.tree.match((), d.request(text(1, 40)).tokens)
        assert third.length < 40 <= third.known, "evicted, and known to have been there"
