"""The engine's loop without text and threads: scheduler, radix tree, runner, greedy tokens.

On a device a step is planned and queued while the one before it runs, as the engine does it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentkv.engine.config import EngineConfig
from agentkv.engine.device import Device
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.llama import Llama
from agentkv.engine.run.backends import make_runner
from agentkv.engine.run.sampler import Draft, SampleState
from agentkv.engine.sched.request import Request, Status
from agentkv.engine.sched.scheduler import Scheduler, Step
from agentkv.engine.types import IntArray, SamplingParams
from agentkv.kernels.fp8 import FP8

PAGE = 16


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared: one of these is changed at a time."""

    kv_dtype: torch.dtype | None = None
    graphs: bool = True
    overlap: bool = True
    cascade: bool = True
    deterministic: bool = False


class Loop:
    """One model over one pool of `tokens`. `device`: None on the CPU. Not thread-safe."""

    def __init__(
        self,
        model: Llama,
        device: Device | None,
        setting: Setting,
        *,
        tokens: int,
        running: int,
        step_tokens: int,
    ) -> None:
        c = model.config
        dtype = setting.kv_dtype or model.dtype
        pages = -(-tokens // PAGE)
        scales = None
        if dtype == FP8:
            # Random weights give keys of about 1; calibration would need text.
            scales = torch.full((c.num_layers, 2, c.num_kv_heads), 2.0**-6)
        self.pool = KVPool(
            layers=c.num_layers, slots=pages * PAGE, kv_heads=c.num_kv_heads, head_dim=c.head_dim,
            dtype=dtype, device=model.device, scales=scales,
        )  # fmt: skip
        config = EngineConfig(
            page_size=PAGE,
            max_running=running,
            max_batch_tokens=step_tokens,
            cuda_graphs=setting.graphs,
            cascade=setting.cascade,
            deterministic=setting.deterministic,
        )
        made = make_runner(config, model, self.pool, device, "triton", c.max_position)
        self.runner, self._sampler = made
        self.overlaps = setting.overlap and device is not None
        self._flight: tuple[Step, Draft] | None = None
        self._state = SampleState(
            params=SamplingParams(temperature=0.0),
            prompt_ids=np.empty(0, dtype=np.int32),
            output_ids=[],
        )
        self.scheduler = Scheduler(
            KVCache(pages, PAGE), max_batch_tokens=step_tokens, max_running=running
        )
        self._vocab = c.vocab_size
        self._ids = itertools.count()

    def submit(self, prompt: IntArray, max_new: int) -> Request:
        request = Request(f"r{next(self._ids)}", prompt, max_new=max_new)
        self.scheduler.submit(request)
        return request

    def step(self) -> bool:
        """Schedule, run, wait for the tokens, commit; with overlap, the tokens are those of the step
        before. False when there was nothing to do."""
        last, self._flight = self._flight, None
        step = self.scheduler.schedule()
        try:
            if step is not None and self.overlaps:
                self._flight = step, self._launch(step, last)
            elif step is not None:
                with torch.inference_mode():
                    best = self.runner.forward(step.batch).argmax(dim=-1).tolist()
                self._commit(step, best)
        except Exception:
            assert step is not None
            self.scheduler.drop(step)
            raise
        if last is not None:
            self._commit(last[0], last[1].read())
        return step is not None or last is not None

    def settle(self) -> None:
        """Wait for the step that is under way."""
        last, self._flight = self._flight, None
        if last is not None:
            self._commit(last[0], last[1].read())

    def _launch(self, step: Step, last: tuple[Step, Draft] | None) -> Draft:
        from agentkv.engine.run.device_runner import DeviceRunner

        assert isinstance(self.runner, DeviceRunner)
        logits = self.runner.launch(step.batch, None if last is None else last[1].tokens)
        draft = self._sampler.draft(logits, [self._state for w in step.works if w.samples])
        assert draft is not None
        return draft

    def _commit(self, step: Step, tokens: list[int]) -> None:
        found = iter(tokens)
        self.scheduler.commit(step, [next(found) if w.samples else None for w in step.works])

    def first_token(self, prompt: IntArray) -> tuple[float, int]:
        """Seconds to the first token of a call, and how many tokens were cached."""
        start = time.perf_counter()
        request = self.submit(prompt, 1)
        while request.status is not Status.FINISHED:
            self.step()
        return time.perf_counter() - start, request.cached_tokens or 0

    def decoding(self, prompts: Sequence[IntArray], new: int) -> list[Request]:
        """Calls of `new` tokens each, run up to where all of them decode."""
        requests = [self.submit(p, new) for p in prompts]
        while any(r.status is Status.WAITING or r.prefilling for r in requests):
            if not self.step():
                raise RuntimeError("the pool has no room for all sequences at once")
        return requests

    def steps(self, count: int) -> list[float]:
        """Seconds of each of so many steps."""
        spent = []
        for _ in range(count):
            start = time.perf_counter()
            self.step()
            spent.append(time.perf_counter() - start)
        return spent

    def stop(self, requests: Sequence[Request]) -> None:
        """End these calls; what they computed stays in the tree."""
        self.settle()
        for request in requests:
            self.scheduler.abort(request)

    @property
    def cascades(self) -> int:
        """Steps in which a shared prefix was read once."""
        attention = getattr(self.runner, "attention", None) or getattr(
            self.runner, "_attention", None
        )
        return int(getattr(attention, "cascades", 0))

    @property
    def replays(self) -> int:
        """Steps that went by a recorded graph."""
        graphs = getattr(self.runner, "graphs", None)
        return 0 if graphs is None else int(graphs.replays)


def random_prompt(rng: np.random.Generator, length: int, vocab: int) -> IntArray:
    return rng.integers(0, vocab, length, dtype=np.int32)
