"""An engine on a device that is none (fake_device.py): the code of a GPU's path, as far as it is logic.

The kernels answer by their references, graphs and copies run at once, and what would be a race raises.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine import Engine, RequestOutput, SamplingParams
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run.device_runner import DeviceRunner
from agentkv.engine.run.graphs import DecodeGraphs
from tests.engine.run.fake_device import FakeDevice, Race

Make = Callable[..., Engine]


def ids(count: int, seed: int) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(3, 260, count).tolist()
    return found


def run(engine: Engine, prompts: list[list[int]], **params: Any) -> list[RequestOutput]:
    """All at once."""
    settings = SamplingParams(**{"max_tokens": 12, "temperature": 0, "ignore_eos": True, **params})
    streams = [engine.stream(prompt, settings) for prompt in prompts]
    return [stream.result(120) for stream in streams]


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [list(output.token_ids) for output in outputs]


def runner_of(engine: Engine) -> DeviceRunner:
    assert isinstance(engine._core.runner, DeviceRunner)
    return engine._core.runner


def graphs_of(engine: Engine) -> DecodeGraphs:
    graphs = runner_of(engine).graphs
    assert graphs is not None
    return graphs


PROMPTS = [ids(n, n) for n in (40, 7, 33, 16, 21)]


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("kv", ["auto", "fp8"])
def test_tokens_are_those_of_the_cpu(
    make_engine: Make, device: FakeDevice, page: int, kv: str
) -> None:
    options: dict[str, Any] = {"page_size": page, "kv_dtype": kv, "max_batch_tokens": 32}
    expected = tokens(run(make_engine(device="cpu", **options), PROMPTS))
    engine = make_engine(**options)
    assert (engine.device_name, engine.attention_name) == ("cpu", "triton")
    assert tokens(run(engine, PROMPTS)) == expected
    warm = run(engine, PROMPTS)
    assert tokens(warm) == expected
    assert all(
        out.cache.cached_tokens >= len(p) - 1 - page for out, p in zip(warm, PROMPTS, strict=True)
    )
    graphs = graphs_of(engine)
    assert graphs.captures >= 1 and graphs.replays > graphs.captures
    assert sum(graph.replays for graph in device.graphs) == graphs.replays
    device.check()


def test_what_computes_is_the_workers_thread(make_engine: Make, device: FakeDevice) -> None:
    make_engine()
    assert device.adopted == ["agentkv-engine"]


def test_without_graphs(make_engine: Make, device: FakeDevice) -> None:
    expected = tokens(run(make_engine(), PROMPTS))
    engine = make_engine(cuda_graphs=False)
    captured = len(device.graphs)
    assert tokens(run(engine, PROMPTS)) == expected
    assert runner_of(engine).graphs is None and len(device.graphs) == captured


def test_one_copy_a_step(make_engine: Make, device: FakeDevice) -> None:
    engine = make_engine()
    steps = 0
    launch = runner_of(engine).launch

    def counted(batch: Any, before: Any = None) -> Any:
        nonlocal steps
        steps += 1
        return launch(batch, before)

    runner_of(engine).launch = counted  # type: ignore[method-assign]
    del device.log[:]
    run(engine, PROMPTS)
    assert steps > 10
    assert device.log.count("compute: up") == steps


@pytest.mark.parametrize("page", [1, 16])
def test_padding_writes_nowhere(make_engine: Make, device: FakeDevice, page: int) -> None:
    """Three sequences in a graph for four: no slot changes but those of the three."""
    engine = make_engine(page_size=page)
    prompts = PROMPTS[:3]
    run(engine, prompts)
    pool, changed = engine._core.parts.pool, set[int]()
    graphs = graphs_of(engine)
    run_graph = graphs.run

    def watched(batch: Any, host: Any, before: Any = None) -> Any:
        # What is nobody's now holds noise, so that a write of anything shows.
        free = torch.ones(pool.slots, dtype=torch.bool)
        free[batch.kv_indices] = False
        for i in range(pool.layers):
            pool.layer(i)[:, : pool.slots][:, free] = torch.rand(()).item()
        olds = [pool.layer(i).clone() for i in range(pool.layers)]
        logits = run_graph(batch, host, before)
        for i, old in enumerate(olds):
            differs = (pool.layer(i) != old).flatten(2).any(-1).any(0)
            assert differs.nonzero().flatten().tolist() == sorted(batch.out_slots.tolist())
            changed.update(batch.out_slots.tolist())
        assert logits.shape[0] == len(batch.input_ids)
        return logits

    graphs.run = watched  # type: ignore[method-assign]
    replays = graphs.replays
    engine.flush()  # what the noise goes over
    run(engine, [[*p[:-1], 9] for p in prompts])
    assert graphs.replays > replays and changed
    assert {rows for rows, _ in graphs._known} >= {4}


def test_prompts_and_cascades_go_without_a_graph(
    make_engine: Make, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.engine.attention.triton.LAUNCH_BYTES", 1)
    shared = ids(256, 1)
    prompts = [shared + ids(5, n) for n in (2, 3, 4)]
    expected = tokens(run(make_engine(device="cpu"), prompts))
    engine = make_engine()
    assert tokens(run(engine, prompts)) == expected
    attention: Any = runner_of(engine).attention
    assert attention.cascades > 5
    without = make_engine(cascade=False)
    assert tokens(run(without, prompts)) == expected
    other: Any = runner_of(without).attention
    assert other.cascades == 0
    assert graphs_of(without).replays > graphs_of(engine).replays


def test_a_cascade_must_spare_more_than_launches_cost(
    make_engine: Make, device: FakeDevice
) -> None:
    """These few bytes do not: graphs go on."""
    shared = ids(256, 1)
    engine = make_engine()
    run(engine, [shared + ids(5, n) for n in (2, 3, 4)])
    attention: Any = runner_of(engine).attention
    assert attention.cascades == 0 and graphs_of(engine).replays > 0


def test_a_graph_that_cannot_be_recorded(
    make_engine: Make, device: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    device.refuse_graphs = True
    expected = tokens(run(make_engine(device="cpu"), PROMPTS))
    engine = make_engine()
    assert tokens(run(engine, PROMPTS)) == expected
    assert not graphs_of(engine).works and "without graphs" in caplog.text


def test_abort_while_a_step_is_in_flight(make_engine: Make, device: FakeDevice) -> None:
    """The step ends first; then the pages are given back, once, and are somebody else's."""
    engine = make_engine(pool_tokens=160, max_batch_tokens=64)
    prompts = [ids(40, 1), ids(40, 2)]
    expected = tokens(run(make_engine(device="cpu"), [ids(60, 3), prompts[1]]))
    launch = runner_of(engine).launch
    started, go = threading.Event(), threading.Event()

    def slow(batch: Any, before: Any = None) -> Any:
        logits = launch(batch, before)
        if len(batch.input_ids) == 2:  # both decode
            started.set()
            go.wait(60)
        return logits

    runner_of(engine).launch = slow  # type: ignore[method-assign]
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    gone, stays = (engine.stream(p, params) for p in prompts)
    assert started.wait(60)
    assert engine.abort(gone.request_id)
    # Needs the pages of the one that goes: 40 + 40 + 60 and what they grow by is more than there is.
    late: queue.SimpleQueue[RequestOutput] = queue.SimpleQueue()
    third = threading.Thread(target=lambda: late.put(engine.generate(ids(60, 3), params)))
    third.start()
    go.set()
    assert gone.result(60).finish_reason == "abort"
    assert list(stays.result(60).token_ids) == expected[1]
    assert list(late.get(timeout=60).token_ids) == expected[0]
    third.join()
    engine.check()
    assert engine.stats()["locked_tokens"] == 0


@pytest.mark.parametrize("host", ["auto", "bfloat16"])
@pytest.mark.parametrize("page", [1, 16])
def test_what_was_evicted_comes_back(
    make_engine: Make, device: FakeDevice, page: int, host: str
) -> None:
    options: dict[str, Any] = {
        "pool_tokens": 192,
        "page_size": page,
        "host_cache": "1MiB",
        "host_kv_dtype": host,
        "load_policy": "always",
    }
    expected = tokens(run(make_engine(device="cpu"), [ids(120, 1)]))
    engine = make_engine(**options)
    [cold] = run(engine, [ids(120, 1)])
    for seed in (2, 3):
        run(engine, [ids(150, seed)])
    del device.log[:]
    [warm] = run(engine, [ids(120, 1)])
    assert warm.cache.cached_by_tier["host"] >= 112
    if host == "auto":
        assert tokens([cold]) == tokens([warm]) == expected
    assert device.log.index("copies: waits for compute") < device.log.index("copies: up")
    device.check()
    engine.check()


def test_a_copy_that_does_not_wait_is_found_out(
    make_engine: Make, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the tests above can fail: without the event of what is computed, the stream does not wait."""
    engine = make_engine(pool_tokens=192, host_cache="1MiB", load_policy="always")
    assert engine._core.lower is not None
    copies = engine._core.lower.mover.copies
    monkeypatch.setattr(copies, "mark", lambda: None)
    with pytest.raises(Race):
        copies.down(np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32), copies.mark())


def test_no_bits_are_promised_where_they_cannot_be(make_engine: Make, device: FakeDevice) -> None:
    with pytest.raises(InvalidRequest, match="deterministic=True cannot be kept"):
        make_engine(deterministic=True)


def test_an_engine_that_cannot_have_its_pool_says_what_to_do(
    make_engine: Make, device: FakeDevice
) -> None:
    device.free = device.total // 4
    with pytest.raises(InvalidRequest, match="smaller max_model_len"):
        make_engine(pool_tokens=None)
    device.free = device.total - 1000
    engine = make_engine(pool_tokens=None, max_model_len=512, gpu_memory=0.35, dtype="float32")
    per_token = engine.kv_bytes / engine.pool_tokens
    assert engine.pool_tokens * per_token < device.total * 0.35 - (7 << 28)
