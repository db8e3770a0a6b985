"""Steps that are planned while the one before them runs: the same answers as one after the other.

On the stand-in device (fake_device.py), where tokens that are read before they have come are poison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agentkv.engine import Engine, RequestOutput, SamplingParams
from agentkv.engine.errors import EngineError
from agentkv.engine.run.device_runner import DeviceRunner
from agentkv.engine.run.device_sampler import DeviceSampler
from agentkv.engine.run.sampler import Draft
from agentkv.engine.types import Grammar
from tests.engine.run.fake_device import FakeDevice

Make = Callable[..., Engine]


def ids(count: int, seed: int) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(3, 260, count).tolist()
    return found


def settings(**params: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 12, "temperature": 0, "ignore_eos": True, **params})


def ask(engine: Engine, calls: list[tuple[list[int], SamplingParams]]) -> list[RequestOutput]:
    """All of them in front of one step."""

    def submit() -> None:
        streams.extend(engine.stream(prompt, params) for prompt, params in calls)

    streams: list[Any] = []
    engine._worker.ask(submit)
    return [stream.result(120) for stream in streams]


def answers(outputs: list[RequestOutput]) -> list[Any]:
    return [
        [(c.text, list(c.token_ids), c.finish_reason, c.stop_reason) for c in output.choices]
        for output in outputs
    ]


class Watch:
    """What the worker does, in order: `launch n`, and `read n` for a draft that it waits for."""

    def __init__(self, engine: Engine) -> None:
        self.events: list[str] = []
        runner, sampler = engine._core.parts.ahead, engine._core.parts.sampler
        assert isinstance(runner, DeviceRunner) and isinstance(sampler, DeviceSampler)
        launch, draft, sample = runner.launch, sampler.draft, sampler.sample
        self.launches = 0

        def launched(batch: Any, before: Any = None) -> Any:
            self.launches += 1
            self.events.append(f"launch {self.launches}")
            return launch(batch, before)

        def drafted(*arguments: Any) -> Any:
            found = draft(*arguments)
            return found if found is None else Watched(found, self.events, self.launches)

        def sampled(*arguments: Any) -> Any:
            self.events.append(f"sample {self.launches}")
            return sample(*arguments)

        runner.launch = launched  # type: ignore[method-assign]
        sampler.draft = drafted  # type: ignore[assignment, method-assign]
        sampler.sample = sampled  # type: ignore[assignment, method-assign]

    @property
    def ahead(self) -> int:
        """Drafts that were read after the next step's launch."""
        return sum(
            f"launch {n + 1}" in self.events[: self.events.index(f"read {n}")]
            for n in range(1, self.launches + 1)
            if f"read {n}" in self.events
        )


class Watched:
    def __init__(self, draft: Draft, events: list[str], number: int) -> None:
        self.tokens, self.sent = draft.tokens, draft.sent
        self._draft, self._events, self._number = draft, events, number

    def read(self) -> list[int]:
        self._events.append(f"read {self._number}")
        return self._draft.read()


def test_a_step_is_launched_before_the_last_one_is_read(
    make_engine: Make, device: FakeDevice
) -> None:
    engine = make_engine()
    watch = Watch(engine)
    [out] = ask(engine, [(ids(20, 1), settings(max_tokens=4))])
    assert len(out.token_ids) == 4
    assert watch.events == [
        "launch 1", "launch 2", "read 1", "launch 3", "read 2", "launch 4", "read 3", "read 4",
    ]  # fmt: skip
    assert watch.ahead == 3


def test_without_overlap_each_step_is_read_first(make_engine: Make, device: FakeDevice) -> None:
    engine = make_engine(overlap=False)
    assert engine._core.parts.ahead is None
    [out] = ask(engine, [(ids(20, 1), settings(max_tokens=4))])
    assert len(out.token_ids) == 4


def mixed(stops: list[int]) -> list[tuple[list[int], SamplingParams]]:
    """Calls that end at different times for different reasons, greedy and drawn, sharing prefixes."""
    shared = ids(40, 9)
    return [
        (ids(30, 1), settings()),
        (shared + ids(9, 2), settings(max_tokens=1)),
        (shared + ids(11, 3), settings(max_tokens=20, stop_token_ids=stops)),
        (ids(70, 4), settings(temperature=0.9, seed=5, n=2)),
        (shared + ids(11, 3), settings(max_tokens=7, temperature=1.0, top_k=1, seed=1)),
        (ids(17, 6), settings(max_tokens=30, stop_token_ids=stops)),
        (ids(5, 7), settings(max_tokens=0)),
    ]


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("budget", [24, 256])
def test_answers_are_those_without_overlap(
    make_engine: Make, device: FakeDevice, page: int, budget: int
) -> None:
    """Also where there is so little memory that calls wait for each other."""
    options = {"page_size": page, "max_batch_tokens": budget, "max_running": 6}
    plain = make_engine(overlap=False, **options)
    long = [*plain.generate(ids(30, 1), settings(max_tokens=40)).token_ids]
    stops = [*long[3:9]]
    expected = answers(ask(plain, mixed(stops)))
    reasons = {choice[2] for call in expected for choice in call}
    assert reasons == {"length", "stop"}
    for pool in (2048, 208):
        engine = make_engine(pool_tokens=pool, **options)
        watch = Watch(engine)
        for round_ in range(2):
            found = ask(engine, mixed(stops))
            assert answers(found) == expected
            if round_ and pool == 2048:
                assert all(o.cache.cached_tokens >= o.cache.prompt_tokens - page for o in found)
        assert watch.ahead > 10
        engine.check()
        stats = engine.stats()
        assert stats["locked_tokens"] == stats["private_tokens"] == 0
    device.check()


@pytest.mark.parametrize("page", [1, 16])
def test_calls_that_are_taken_back(make_engine: Make, device: FakeDevice, page: int) -> None:
    """A step that finds no page waits for the one that runs; then somebody has to go back."""
    options = {"page_size": page, "pool_tokens": 176, "max_batch_tokens": 32}
    calls = [(ids(20, seed), settings(max_tokens=70)) for seed in (1, 2, 3)]
    expected = answers(ask(make_engine(device="cpu"), calls))
    engine = make_engine(**options)
    watch = Watch(engine)
    assert answers(ask(engine, calls)) == expected
    stats = engine.stats()
    assert stats["retractions_total"] > 0 and watch.ahead > 40
    assert stats["locked_tokens"] == stats["private_tokens"] == 0


def test_calls_that_need_the_host_have_their_steps_read_first(
    make_engine: Make, device: FakeDevice
) -> None:
    """Grammars, penalties and log-probabilities among calls that need nothing of the kind."""
    grammar = Grammar(kind="regex", text="[ab]{3}")
    calls = [
        (ids(20, 1), settings(max_tokens=25)),
        (ids(20, 2), settings(max_tokens=6, frequency_penalty=1.5)),
        (ids(20, 3), settings(max_tokens=6, logprobs=2)),
        (ids(20, 4), settings(max_tokens=8, grammar=grammar, ignore_eos=False)),
        (ids(20, 5), settings(max_tokens=3, prompt_logprobs=1)),
        (ids(20, 6), settings(max_tokens=9, min_tokens=4)),
    ]
    plain, engine = make_engine(overlap=False), make_engine()
    watch = Watch(engine)
    one, two = ask(plain, calls), ask(engine, calls)
    assert answers(one) == answers(two)
    assert [c.logprobs for o in one for c in o.choices] == [
        c.logprobs for o in two for c in o.choices
    ]
    assert one[4].prompt_logprobs == two[4].prompt_logprobs
    # Once only the first call is left, steps overlap.
    assert any(event.startswith("sample") for event in watch.events)
    assert watch.ahead >= 12


def test_stop_strings_and_aborts(make_engine: Make, device: FakeDevice) -> None:
    """Both end a call whose next token is already under way: it is dropped, and nobody sees it."""
    plain, engine = make_engine(overlap=False), make_engine()
    text = plain.generate(ids(30, 1), settings(max_tokens=20)).text
    stop = next(text[i : i + 2] for i in range(4, len(text)) if text.index(text[i : i + 2]) == i)
    params = settings(max_tokens=20, stop=(stop,))
    one, two = plain.generate(ids(30, 1), params), engine.generate(ids(30, 1), params)
    assert one.finish_reason == two.finish_reason == "stop"
    assert (one.text, one.token_ids) == (two.text, two.token_ids)

    whole = list(engine.generate(ids(30, 2), settings(max_tokens=200)).token_ids)
    stream = engine.stream(ids(30, 2), settings(max_tokens=200))
    seen: list[int] = []
    ends: list[RequestOutput] = []
    for event in stream:
        seen += event.token_ids
        ends += [event.output] if event.output is not None else []
        if len(seen) >= 5:
            engine.abort(stream.request_id)
    assert [end.finish_reason for end in ends] == ["abort"]
    assert list(ends[0].token_ids) == seen == whole[: len(seen)]
    assert 5 <= len(seen) < 200
    again = engine.generate(ids(30, 2), settings(max_tokens=200))
    assert list(again.token_ids) == whole
    engine.check()
    assert engine.stats()["locked_tokens"] == 0


def test_a_launch_that_fails_takes_nothing_with_it(make_engine: Make, device: FakeDevice) -> None:
    """What the step before gave arrives; the calls of the step that failed end with the reason."""
    engine = make_engine()
    expected = engine.generate(ids(30, 1), settings()).token_ids
    runner = engine._core.parts.ahead
    assert runner is not None
    launch, count = runner.launch, 0

    def failing(batch: Any, before: Any = None) -> Any:
        nonlocal count
        count += 1
        if count == 4:
            raise RuntimeError("out of memory")
        return launch(batch, before)

    runner.launch = failing  # type: ignore[method-assign]
    stream = engine.stream(ids(30, 2), settings())
    seen: list[int] = []
    with pytest.raises(EngineError, match="out of memory"):
        for event in stream:
            seen += event.token_ids
    assert len(seen) == 3
    engine.check()
    stats = engine.stats()
    assert stats["locked_tokens"] == stats["private_tokens"] == 0
    assert engine.generate(ids(30, 1), settings()).token_ids == expected


def test_closing_while_a_step_is_under_way(make_engine: Make, device: FakeDevice) -> None:
    engine = make_engine()
    stream = engine.stream(ids(30, 1), settings(max_tokens=500))
    for event in stream:
        if event.token_ids:
            break
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        stream.result(60)


def test_what_left_the_pool_comes_back_beside_steps(make_engine: Make, device: FakeDevice) -> None:
    """Loads and saves among steps that overlap: whole answers, from host memory too."""
    options: dict[str, Any] = {"page_size": 16, "pool_tokens": 256, "max_running": 3}
    rounds = [[(ids(90, seed), settings(max_tokens=10))] * 1 for seed in (1, 2, 3, 4)]
    plain = make_engine(overlap=False, **options)
    expected = [answers(ask(plain, calls)) for calls in rounds]
    engine = make_engine(host_cache="1MiB", load_policy="always", **options)
    busy = engine.stream(ids(20, 8), settings(max_tokens=60))
    host = 0
    for _ in range(3):
        for calls, answer in zip(rounds, expected, strict=True):
            found = ask(engine, calls)
            assert answers(found) == answer
            host += found[0].cache.cached_by_tier["host"]
    busy.result(60)
    assert host >= 160
    engine.check()
    device.check()


def test_what_leaves_the_pool_does_not_wait_for_the_step_that_runs(
    make_engine: Make, device: FakeDevice
) -> None:
    """Its pages are of steps that were committed; only loads wait for what is under way."""
    engine = make_engine(
        page_size=16, pool_tokens=256, max_running=3, host_cache="1MiB", load_policy="always"
    )
    lower, runner = engine._core.lower, engine._core.parts.ahead
    assert lower is not None and runner is not None
    copies = lower.mover.copies
    down, mark, launch = copies.down, copies.mark, runner.launch
    launched: list[int] = [0]
    saves: list[bool] = []
    marks: list[bool] = []

    def saved(slots: Any, host: Any, after: Any = None) -> None:
        if engine._core.scheduler.planned:
            saves.append(after.at < launched[-1])
        down(slots, host, after)

    def marked() -> Any:
        found: Any = mark()
        marks.append(found.at > launched[-1])
        return found

    def launch_watched(batch: Any, before: Any = None) -> Any:
        logits = launch(batch, before)
        launched.append(device._moment)
        return logits

    copies.down, copies.mark = saved, marked  # type: ignore[assignment, method-assign]
    runner.launch = launch_watched  # type: ignore[method-assign]
    busy = engine.stream(ids(20, 8), settings(max_tokens=100))
    for seed in (1, 2, 3, 1, 2, 3):
        ask(engine, [(ids(90, seed), settings(max_tokens=10))])
    busy.result(60)
    assert len(saves) >= 3 and all(saves)
    assert lower.stats()["host"]["loaded_tokens_total"] >= 80
    assert marks and all(marks)
    device.check()


def test_an_abort_that_comes_as_a_call_fails_ends_it_once(
    make_engine: Make, device: FakeDevice
) -> None:
    engine = make_engine()
    runner = engine._core.parts.ahead
    assert runner is not None
    launch = runner.launch

    def failing(batch: Any, before: Any = None) -> Any:
        engine.abort(stream.request_id)  # is carried out behind this step
        raise RuntimeError("out of memory")

    runner.launch = failing  # type: ignore[method-assign]
    stream = engine._worker.ask(lambda: engine.stream(ids(30, 2), settings()))
    with pytest.raises(EngineError, match="out of memory"):
        stream.result(60)
    runner.launch = launch  # type: ignore[method-assign]
    stats = engine.stats()
    assert stats["requests_total"] == stats["aborted_total"] == 0
    assert stream._events.empty(), "nothing comes behind the error"
