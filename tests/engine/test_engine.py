"""The engine as its users see it: answers, facts, errors, lifetimes. On a tiny random model."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from agentkv.engine import Engine, EngineConfig, SamplingParams
from agentkv.engine.errors import (
    ContextLengthExceeded,
    EngineClosed,
    InvalidRequest,
    ModelNotFound,
    PoolTooSmall,
    QueueFull,
)

Make = Callable[..., Engine]
PAGES = pytest.mark.parametrize("page", [1, 16])


def greedy(tokens: int, **options: object) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, **options)  # type: ignore[arg-type]


def words(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(3, 260), k=count)


# -- the same answer, cached or not


@PAGES
@pytest.mark.parametrize("others", [0, 2, 7])
def test_warm_equals_cold_at_every_page_edge_and_batch_size(
    make_engine: Make, page: int, others: int
) -> None:
    """B004, B005: bit-equal log-probabilities, so equal answers; and the hit happened."""
    engine = make_engine(page_size=page, max_batch_tokens=64)
    params = greedy(12, logprobs=3)
    for cached in (page - 1, page, page + 1, 2 * page, 5 * page + 3):
        if cached == 0:
            continue
        prompt = words(cached, cached + 20)
        engine.flush()
        cold = engine.generate(prompt, params)
        engine.flush()
        engine.generate(prompt[:cached], SamplingParams(max_tokens=0))
        with ThreadPoolExecutor(others + 1) as pool:
            rest = [
                pool.submit(engine.generate, words(900 + i, 30 + 7 * i), params)
                for i in range(others)
            ]
            warm = pool.submit(engine.generate, prompt, params).result()
            [r.result() for r in rest]
        assert warm.cache.cached_tokens == cached // page * page
        assert warm.token_ids == cold.token_ids
        assert warm.choices[0].logprobs == cold.choices[0].logprobs


def test_five_times_the_same_greedy_request(make_engine: Make) -> None:
    """B005."""
    engine = make_engine()
    outputs = [engine.generate(words(1, 70), greedy(40, logprobs=2)) for _ in range(5)]
    assert [o.cache.cached_tokens for o in outputs] == [0, 69, 69, 69, 69]
    assert all(o.choices[0].logprobs == outputs[0].choices[0].logprobs for o in outputs)


@PAGES
def test_chained_prefixes_of_one_to_twelve_pages(make_engine: Make, page: int) -> None:
    """B005: nothing grows along a chain of reuse."""
    engine = make_engine(page_size=page)
    text = words(5, 12 * page + 5)
    chained = [engine.generate(text[: k * page + 5], greedy(6, logprobs=1)) for k in range(1, 13)]
    for k, warm in enumerate(chained, 1):
        engine.flush()
        cold = engine.generate(text[: k * page + 5], greedy(6, logprobs=1))
        assert warm.choices[0].logprobs == cold.choices[0].logprobs
        assert warm.cache.cached_tokens >= (k - 1) * page


@PAGES
def test_sixteen_at_once_with_one_prefix(make_engine: Make, page: int) -> None:
    """B001: nobody reads pages that are not written yet."""
    prefix = words(2, 128)
    prompts = [prefix + words(100 + i, 5) for i in range(16)]
    engine = make_engine(page_size=page)
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda p: engine.generate(p, greedy(8)), prompts))
    for prompt, output in zip(prompts, together, strict=True):
        engine.flush()
        assert engine.generate(prompt, greedy(8)).token_ids == output.token_ids
    assert sum(o.cache.cached_tokens >= 128 // page * page for o in together) == 15


def test_with_the_cache_off_answers_stay_the_same(make_engine: Make) -> None:
    on, off = make_engine(), make_engine(prefix_cache=False)
    for _ in range(2):
        a, b = (e.generate(words(3, 60), greedy(16, logprobs=1)) for e in (on, off))
        assert a.choices[0].logprobs == b.choices[0].logprobs
        assert b.cache.cached_tokens == 0


@pytest.mark.parametrize("start", [0, 25, 49])
def test_prompt_logprobs_on_a_warm_prefix(make_engine: Make, start: int) -> None:
    """I: from position 0, n/2 and n-1; equal to the cold ones, and never from stale memory."""
    engine = make_engine(max_batch_tokens=16)
    prompt = words(4, 50)
    params = SamplingParams(
        temperature=0, max_tokens=2, prompt_logprobs=2, prompt_logprobs_start=start
    )
    cold = engine.generate(prompt, params)
    warm = engine.generate(prompt, params)
    assert warm.cache.cached_tokens == max(0, start - 1)
    assert warm.prompt_logprobs == cold.prompt_logprobs
    scored = [i for i, p in enumerate(warm.prompt_logprobs or ()) if p is not None]
    assert scored == list(range(max(1, start), 50))
    assert [p.token_id for p in (warm.prompt_logprobs or ())[max(1, start) :] if p] == prompt[
        max(1, start) :
    ]


# -- facts


@PAGES
def test_turn_two_reuses_turn_ones_output(make_engine: Make, page: int) -> None:
    """K."""
    engine = make_engine(page_size=page)
    first = engine.generate(words(1, 33), greedy(20), session="s")
    second = engine.generate([*words(1, 33), *first.token_ids, 9, 9], greedy(4), session="s")
    assert second.cache.cached_tokens == 52 // page * page
    assert second.cache.miss is not None and second.cache.miss.reason == "appended"


def test_facts_of_cold_warm_and_evicted_calls(make_engine: Make) -> None:
    engine = make_engine(pool_tokens=200)
    prompt = words(1, 100)
    cold = engine.generate(prompt, greedy(2), session="s").cache
    assert (cold.cached_tokens, cold.computed_tokens) == (0, 100)
    assert cold.miss is not None and (cold.miss.reason, cold.miss.token) == ("first_call", 0)
    warm = engine.generate(prompt, greedy(2), session="s").cache
    assert (warm.cached_tokens, warm.miss) == (99, None)
    assert warm.cached_by_tier == {"device": 99, "host": 0, "disk": 0}
    for i in range(3):
        engine.generate(words(50 + i, 150), greedy(2))
    gone = engine.generate(prompt, greedy(2), session="s").cache
    assert gone.cached_tokens < 99 and gone.reusable_tokens == 99
    assert gone.miss is not None and gone.miss.reason == "evicted"
    engine.flush()
    flushed = engine.generate(prompt, greedy(2), session="s").cache
    assert flushed.cached_tokens == 0
    assert flushed.miss is not None and flushed.miss.reason == "evicted"


def test_sub_page_tail(make_engine: Make) -> None:
    engine = make_engine(page_size=16)
    for _ in range(2):
        facts = engine.generate(words(1, 60), greedy(1)).cache
    assert facts.cached_tokens == 48
    assert facts.miss is not None and facts.miss.reason == "sub_page_tail"


def test_salts_share_nothing_and_the_same_salt_does(make_engine: Make) -> None:
    engine = make_engine()
    for salt, cached in ((None, 0), ("a", 0), ("b", 0), ("a", 59), ("b", 59), (None, 59)):
        out = engine.generate(words(1, 60), greedy(2), salt=salt, session="s")
        assert out.cache.cached_tokens == cached, salt


def test_main_and_side_calls_keep_their_prefixes(make_engine: Make) -> None:
    """B013: a sub-agent and a title call between the turns of a long conversation."""
    engine = make_engine(pool_tokens=4000)
    system = words(0, 100)
    main = [*system, *words(1, 600)]
    previous = 0
    for turn in range(10):
        out = engine.generate(main, greedy(5), session="main")
        assert out.cache.cached_tokens >= previous
        previous = len(main)
        main += [*out.token_ids, *words(10 + turn, 20)]
        side = engine.generate([*system, *words(2, 150), turn + 3], greedy(5), session="side")
        title = engine.generate([*words(3, 30), turn + 3], greedy(3), session="title")
        if turn:
            assert side.cache.cached_tokens == 250 and title.cache.cached_tokens == 30
        else:
            assert side.cache.cached_tokens == 100, "the system prefix is stored once"


# -- choices, streams, sampling


def test_choices_share_one_prefill(make_engine: Make) -> None:
    engine = make_engine()
    params = SamplingParams(temperature=1.0, max_tokens=8, n=4, seed=5, ignore_eos=True)
    out = engine.generate(words(1, 90), params)
    assert [c.index for c in out.choices] == [0, 1, 2, 3]
    assert len({c.token_ids for c in out.choices}) > 1
    assert out.cache.prompt_tokens == 90 and out.cache.cached_tokens == 0
    assert out.completion_tokens == 32
    again = engine.generate(words(1, 90), params)
    assert [c.token_ids for c in again.choices] == [c.token_ids for c in out.choices]


def test_a_stream_joined_is_the_unstreamed_text(make_engine: Make) -> None:
    engine = make_engine()
    params = SamplingParams(temperature=0.9, seed=3, max_tokens=40, n=2, logprobs=1)
    whole = engine.generate("hello there", params)
    events = list(engine.stream("hello there", params))
    assert events[0].index == -1 and events[0].cache is not None
    assert events[-1].output is not None and events[-1].output.choices == whole.choices
    for choice in whole.choices:
        mine = [e for e in events if e.index == choice.index]
        assert "".join(e.text for e in mine) == choice.text
        assert tuple(t for e in mine for t in e.token_ids) == choice.token_ids
        assert tuple(p for e in mine for p in e.logprobs or ()) == choice.logprobs
        assert [e.finish_reason for e in mine if e.finish_reason] == [choice.finish_reason]
        assert mine[-1].finish_reason


def test_stop_strings_end_a_choice_and_are_not_shown(make_engine: Make) -> None:
    engine = make_engine()
    free = engine.generate("abc", greedy(60))
    stop = free.text[20:24]
    assert len(stop) == 4
    out = engine.generate("abc", greedy(60, stop=(stop,)))
    assert out.text == free.text[: free.text.index(stop)]
    assert (out.finish_reason, out.choices[0].stop_reason) == ("stop", stop)
    engine.check()


def test_stop_token_and_min_tokens(make_engine: Make) -> None:
    engine = make_engine()
    free = engine.generate(words(1, 10), greedy(30)).token_ids
    token = free[4]
    first = free.index(token)
    out = engine.generate(words(1, 10), greedy(30, stop_token_ids=(token,)))
    assert out.token_ids == free[: first + 1] and out.finish_reason == "stop"
    assert out.choices[0].stop_reason == token
    late = engine.generate(words(1, 10), greedy(30, stop_token_ids=(token,), min_tokens=first + 3))
    assert len(late.token_ids) >= first + 3


def test_zero_tokens_only_prefill(make_engine: Make) -> None:
    engine = make_engine()
    out = engine.generate(words(1, 50), SamplingParams(max_tokens=0))
    assert (out.text, out.token_ids, out.finish_reason) == ("", (), "length")
    assert engine.generate([*words(1, 51)[:50], 7], greedy(1)).cache.cached_tokens == 50


# -- errors


def test_what_cannot_fit_is_refused_with_numbers(make_engine: Make) -> None:
    engine = make_engine(pool_tokens=300)
    with pytest.raises(ContextLengthExceeded) as window:
        engine.generate(words(1, 2040), greedy(20))
    assert "2048" in str(window.value) and "2040" in str(window.value)
    with pytest.raises(PoolTooSmall) as pool:
        engine.generate(words(1, 290), greedy(20))
    assert "309" in str(pool.value) and "300" in str(pool.value)
    with pytest.raises(ContextLengthExceeded):
        engine.stream(words(1, 3000))
    assert engine.generate(words(1, 290), SamplingParams(temperature=0)).completion_tokens <= 11


@pytest.mark.parametrize(
    ("prompt", "options", "param"),
    [
        ([], {}, "prompt"),
        ("", {}, "prompt"),
        ([999_999], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([5], {"logit_bias": {999_999: 1.0}}, "logit_bias"),
    ],
)
def test_bad_input_names_its_field(
    make_engine: Make, prompt: object, options: dict, param: str
) -> None:
    engine = make_engine()
    with pytest.raises(InvalidRequest) as error:
        engine.generate(prompt, SamplingParams(**options))  # type: ignore[arg-type]
    assert error.value.param == param


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": float("nan")},
        {"temperature": -1},
        {"top_p": 0},
        {"n": 0},
        {"n": 17},
        {"max_tokens": -1},
        {"stop": ("",)},
        {"logprobs": 99},
        {"logit_bias": {1: float("inf")}},
        {"seed": 2**70},
    ],
)
def test_sampling_parameters_are_checked(options: dict) -> None:
    with pytest.raises(InvalidRequest) as error:
        SamplingParams(**options)
    assert error.value.param == next(iter(options))


def test_an_unknown_model_is_said_to_be_unknown() -> None:
    with pytest.raises(ModelNotFound, match="smollm2-135m"):
        Engine(model="no-such-model-here")


def test_a_full_queue_is_refused(make_engine: Make) -> None:
    engine = make_engine(max_queued=3, max_running=1)
    streams = [engine.stream(words(i, 400), greedy(200)) for i in range(3)]
    with pytest.raises(QueueFull):
        for i in range(10):
            streams.append(engine.stream(words(20 + i, 400), greedy(200)))
    for stream in streams:
        stream.close()


def test_a_step_that_fails_fails_its_calls_and_no_others(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    good = engine.generate(words(1, 40), greedy(5))
    forward = engine._core.runner.forward

    def broken(batch: object) -> object:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(engine._core.runner, "forward", broken)
    with pytest.raises(Exception, match="out of luck"):
        engine.generate(words(2, 40), greedy(5))
    monkeypatch.setattr(engine._core.runner, "forward", forward)
    assert engine.generate(words(2, 40), greedy(5)).cache.cached_tokens == 0
    assert engine.generate(words(1, 40), greedy(5)).token_ids == good.token_ids
    engine.check()


# -- lifetimes


def settle(engine: Engine) -> dict[str, object]:
    """Stats once nothing runs any more; five seconds at most."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        stats = engine.stats()
        if not stats["num_requests_running"] and not stats["num_requests_waiting"]:
            return stats
        time.sleep(0.01)
    raise AssertionError(f"still busy: {stats}")


def test_closing_a_stream_aborts_its_call(make_engine: Make) -> None:
    engine = make_engine()
    stream = engine.stream(words(1, 60), greedy(1500))
    for event in stream:
        if event.index == 0:
            break
    stream.close()
    stats = settle(engine)
    assert stats["locked_tokens"] == stats["private_tokens"] == 0
    assert engine.generate(words(1, 60), greedy(1)).cache.cached_tokens == 59
    del stream
    engine.stream(words(2, 60), greedy(1500))  # never read, dropped at once
    assert settle(engine)["aborted_total"] == 2


def test_abort_by_id_and_timeout(make_engine: Make) -> None:
    engine = make_engine()
    stream = engine.stream(words(1, 60), greedy(1500), request_id="mine")
    next(stream)
    assert engine.abort("mine")
    assert stream.result().finish_reason == "abort"
    assert not engine.abort("mine") and not engine.abort("other")
    with pytest.raises(TimeoutError):
        engine.generate(words(3, 60), greedy(1800), timeout=0.05)
    settle(engine)


async def test_asyncio_twins(make_engine: Make) -> None:
    engine = make_engine()
    sync = engine.generate(words(1, 40), greedy(10))
    assert (await engine.agenerate(words(1, 40), greedy(10))).choices == sync.choices
    text = ""
    async for event in engine.astream(words(1, 40), greedy(10)):
        text += event.text
    assert text == sync.text
    task = asyncio.create_task(engine.agenerate(words(2, 40), greedy(1800)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    settle(engine)
    many = await asyncio.gather(*(engine.agenerate(words(1, 40), greedy(10)) for _ in range(8)))
    assert all(m.choices == sync.choices for m in many)


def test_a_closed_engine_says_so(make_engine: Make) -> None:
    engine = make_engine()
    stream = engine.stream(words(1, 60), greedy(1500))
    engine.close()
    with pytest.raises(EngineClosed):
        list(stream)
    with pytest.raises(EngineClosed):
        engine.generate("x")
    engine.close()


def test_flush_while_requests_run(make_engine: Make) -> None:
    engine = make_engine()
    expected = engine.generate(words(1, 80), greedy(100)).token_ids
    stream = engine.stream(words(1, 80), greedy(100))
    for event in stream:
        if event.index == 0:
            break
    assert engine.flush() > 0
    assert stream.result().token_ids == expected
    assert settle(engine)["locked_tokens"] == 0
    engine.check()


@pytest.mark.parametrize("page", [1, 16])
def test_eight_threads_on_a_pool_hardly_larger_than_one_prompt(
    make_engine: Make, page: int
) -> None:
    """B007, B008: random aborts in prefill and decode; every answer is right or aborted, and in the
    end no page is locked."""
    engine = make_engine(page_size=page, pool_tokens=480, max_batch_tokens=48, max_running=6)
    reference = make_engine(page_size=page, prefix_cache=False)
    tree = [words(i, 90) for i in range(3)]
    prompts = []
    rng = random.Random(11)
    for i in range(24):
        prompts.append(tree[i % 3][: rng.randint(2, 90)] + words(40 + i, rng.randint(1, 200)))
    expected = [reference.generate(p, greedy(12)).token_ids for p in prompts]
    failures: list[str] = []

    def work(seed: int) -> None:
        mine = random.Random(seed)
        for _ in range(12):
            pick = mine.randrange(len(prompts))
            stream = engine.stream(prompts[pick], greedy(12))
            if mine.random() < 0.3:
                for _ in range(mine.randint(0, 5)):
                    next(stream, None)
                stream.close()
                continue
            got = stream.result(60).token_ids
            if got != expected[pick]:
                failures.append(f"prompt {pick}: {got} != {expected[pick]}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    stats = settle(engine)
    assert stats["locked_tokens"] == stats["private_tokens"] == 0
    assert stats["free_tokens"] + stats["evictable_tokens"] == engine.pool_tokens  # type: ignore[operator]
    engine.check()


def test_configuration_is_checked() -> None:
    for bad in ({"page_size": 3}, {"policy": "best"}, {"max_running": 0}, {"pool_tokens": 0}):
        with pytest.raises(InvalidRequest):
            EngineConfig(**bad)


def test_ids_come_in_any_integer_form(make_engine: Make) -> None:
    engine = make_engine()
    ids = words(1, 30)
    a = engine.generate(ids, greedy(3))
    b = engine.generate(np.array(ids), greedy(3))
    assert a.token_ids == b.token_ids and b.cache.cached_tokens == 29
