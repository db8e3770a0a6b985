"""An abort between a step's launch and its result (rule G), over the device's runner: nothing of the step
is given to anybody before it has ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.attention.triton import TritonAttention
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.load import LoadedModel, load_model
from agentkv.engine.run.device_runner import DeviceRunner, prepare
from agentkv.engine.sched.request import Request, Status
from agentkv.engine.sched.scheduler import Scheduler, Step
from tests.engine.run.fake_device import FakeDevice

PAGES = 12
NEW = 6


class Loop:
    """schedule -> launch -> commit by hand, greedily."""

    def __init__(self, model: LoadedModel, page: int) -> None:
        c = model.config
        self.device = FakeDevice()
        pool = KVPool(
            layers=c.num_layers,
            slots=PAGES * 16,
            kv_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            dtype=torch.float32,
        )
        prepare(model, deterministic=False)
        self.runner = DeviceRunner(
            model,
            pool,
            TritonAttention(page),
            self.device,
            page_size=page,
            graphs=True,
            max_running=8,
            max_len=256,
        )
        self.scheduler = Scheduler(KVCache(PAGES * 16 // page, page), max_batch_tokens=40)

    def submit(self, name: str, ids: Any) -> Request:
        request = Request(name, np.asarray(ids, dtype=np.int32), max_new=NEW)
        self.scheduler.submit(request)
        return request

    def launch(self) -> tuple[Step, torch.Tensor]:
        step = self.scheduler.schedule()
        assert step is not None
        return step, self.runner.forward(step.batch)

    def result(self, step: Step, logits: torch.Tensor) -> list[Request]:
        best = iter(logits.argmax(dim=-1).tolist())
        tokens = [next(best) if work.samples else None for work in step.works]
        ended = self.scheduler.commit(step, tokens)
        self.scheduler.check(deep=True)
        return ended

    def run(self) -> None:
        while not self.scheduler.idle:
            self.result(*self.launch())


def ids(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(3, 130, count)


@pytest.fixture(scope="module")
def model(tiny: Any) -> LoadedModel:
    return load_model(tiny("LlamaConfig")[0], dtype=torch.float32)


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("steps", [0, 1, 4])  # mid-chunk, decoding, decoding by a graph
def test_an_abort_in_flight(model: LoadedModel, page: int, steps: int) -> None:
    alone = {}
    for name, count, seed in (("stays", 20, 2), ("next", 100, 3)):
        loop = Loop(model, page)
        request = loop.submit(name, ids(count, seed))
        loop.run()
        alone[name] = request.output.tolist()

    loop = Loop(model, page)
    goes, stays = loop.submit("goes", ids(60, 1)), loop.submit("stays", ids(20, 2))
    for _ in range(steps + (2 if steps else 0)):
        loop.result(*loop.launch())
    step, logits = loop.launch()
    assert goes in [work.request for work in step.works]
    if steps == 4:
        assert loop.runner.graphs is not None and loop.runner.graphs.replays > 0
    free = loop.scheduler.cache.pages.free_pages
    assert loop.scheduler.abort(goes)
    assert loop.scheduler.abort(goes), "a second time changes nothing"
    assert goes.status is Status.RUNNING and goes.allocated > 0
    assert loop.scheduler.cache.pages.free_pages == free
    before = goes.known
    assert goes in loop.result(step, logits)
    assert goes.finish_reason == "abort" and goes.length == goes.known == before, (
        "its last token is dropped"
    )
    assert goes.allocated == 0

    # Its pages are somebody else's now, among others that were its own.
    other = loop.submit("next", ids(100, 3))
    loop.run()
    assert stays.output.tolist() == alone["stays"]
    assert other.output.tolist() == alone["next"]
    # What it had computed is still there, and is right.
    loop.scheduler.cache.flush()
    again = loop.submit("again", ids(60, 1))
    loop.run()
    warm = loop.submit("warm", ids(60, 1))
    loop.run()
    assert (warm.cached_tokens or 0) >= 48
    assert warm.output.tolist() == again.output.tolist()
    loop.device.check()
