"""The engine end to end on the device: a model of 8 billion random weights, no files.

ttft      prompts, cold and cached
decode    batches, by K/V's dtype, with graphs and overlap and without, deterministic
shared    a batch that begins with one long prefix, with cascade and without
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from agentkv.bench.check import progress
from agentkv.bench.device_loop import PAGE, Loop, Setting, random_prompt
from agentkv.bench.device_model import prefill_flops, random_llama, step_bytes
from agentkv.bench.device_run import Run, Section
from agentkv.bench.device_sizes import FP8
from agentkv.engine.device import Device, find_device
from agentkv.engine.model.llama import Llama
from agentkv.engine.sched.request import Status
from agentkv.engine.types import IntArray

WARM_STEPS = 6
"""Steps in front of those that are timed: the first compiles, the second records a graph."""

PROFILED = 3

MOST_DETERMINISTIC = 64
"""Sequences of the largest batch in deterministic mode, whose prompts take long to compute."""

PLAIN = Setting()
SETTINGS = {
    "default": PLAIN,
    "fp8": replace(PLAIN, kv_dtype=FP8),
    "no graphs": replace(PLAIN, graphs=False),
    "no overlap": replace(PLAIN, overlap=False),
    "deterministic": replace(PLAIN, deterministic=True),
}
"""Of `decode`. FP8 changes K/V's dtype only: arithmetic stays in the model's."""


class Bench:
    """The model, made once for all sections, and the device that runs it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.sizes = run.sizes
        self.device: Device | None = None
        if run.device.type == "cuda":
            self.device = find_device(str(run.device))
            assert self.device is not None
        progress(f"engine: {run.sizes.model.layers} layers of random weights")
        self.model: Llama = random_llama(
            run.sizes.model, dtype=run.sizes.dtype, device=run.device, seed=run.seed
        )
        run.clock.wait()
        if self.device is not None:
            self.device.adopt()
        self._rng = np.random.default_rng(run.seed)

    def prompt(self, length: int) -> IntArray:
        return random_prompt(self._rng, length, self.sizes.model.vocab)

    @contextmanager
    def loop(self, setting: Setting, *, tokens: int, running: int) -> Iterator[Loop]:
        """A loop whose pool is gone afterwards."""
        loop = Loop(
            self.model, self.device, setting,
            tokens=tokens, running=running, step_tokens=self.sizes.step_tokens,
        )  # fmt: skip
        try:
            yield loop
        finally:
            del loop
            gc.collect()
            if self.run.device.type == "cuda":
                torch.cuda.empty_cache()

    # -- sections

    def ttft(self, section: Section) -> None:
        """The first token of a long prompt, computed and cached; and what determinism costs there."""
        for name in ("default", "deterministic"):
            with self.run.case(section, f"engine: first token, {name}"):
                section.add(setting=name, **self._ttft(SETTINGS[name]))

    def _ttft(self, setting: Setting) -> dict[str, Any]:
        s = self.sizes
        cold, warm, cached = [], [], 0
        room = (s.repeats + 2) * (s.prompt + PAGE)
        with self.loop(setting, tokens=room, running=1) as loop:
            for i in range(s.repeats + 1):
                prompt = self.prompt(s.prompt)
                a, before = loop.first_token(prompt)
                b, cached = loop.first_token(prompt)
                if before > PAGE or cached < s.prompt - PAGE:
                    raise AssertionError(f"cached {before} and then {cached} of {s.prompt}")
                if i:  # the first one compiles
                    cold.append(a)
                    warm.append(b)
        one, two = statistics.median(cold), statistics.median(warm)
        return {
            "prompt": s.prompt, "cached": cached, "cold_ms": 1e3 * one, "warm_ms": 1e3 * two,
            "ratio": two / one, "tokens_per_s": s.prompt / one,
            "of_matrix": self.run.share(prefill_flops(s.model, s.prompt) / one, "matrix"),
        }  # fmt: skip

    def decode(self, section: Section) -> None:
        """Tokens a second of batches of all sizes, in every setting."""
        s = self.sizes
        prompts = [self.prompt(s.engine_context) for _ in range(max(s.engine_batches))]
        for name, setting in SETTINGS.items():
            batches = s.engine_batches
            if name == "deterministic":
                batches = tuple(b for b in batches if b <= MOST_DETERMINISTIC)
            tokens = max(batches) * (s.engine_context + self._new(prompts) + 2 * PAGE)
            with (
                self.run.case(section, f"engine: a pool of {tokens} tokens, {name}"),
                self.loop(setting, tokens=tokens, running=max(batches)) as loop,
            ):
                for count in batches:
                    with self.run.case(section, f"engine: decode, {name}, {count} sequences"):
                        found = self._decode(loop, prompts[:count])
                        section.add(setting=name, batch=count, context=s.engine_context, **found)

    def shared(self, section: Section) -> None:
        """A batch that shares a long prefix: the cascade against reading it for each sequence."""
        s = self.sizes
        prefix = self.prompt(s.shared_prefix)
        prompts = [
            np.concatenate((prefix, self.prompt(s.shared_own))) for _ in range(s.shared_batch)
        ]
        own = s.shared_own + self._new(prompts) + 2 * PAGE
        tokens = s.shared_prefix + s.shared_batch * own
        for cascade in (True, False):
            name = "on" if cascade else "off"
            what = f"engine: {s.shared_batch} sharing {s.shared_prefix}, cascade {name}"
            with self.run.case(section, what):
                setting = replace(PLAIN, cascade=cascade)
                with self.loop(setting, tokens=tokens, running=s.shared_batch) as loop:
                    found = self._decode(loop, prompts)
                    section.add(
                        cascade=name, batch=s.shared_batch, prefix=s.shared_prefix,
                        own=s.shared_own, cascade_steps=loop.cascades, **found,
                    )  # fmt: skip

    def _new(self, prompts: list[IntArray]) -> int:
        """Tokens that a call may give: all steps, and those in which the other prompts are computed."""
        s = self.sizes
        prefill = -(-sum(map(len, prompts)) // max(1, s.step_tokens - len(prompts))) + len(prompts)
        return WARM_STEPS + s.engine_steps + PROFILED + 1 + prefill

    # -- inside

    def _decode(self, loop: Loop, prompts: list[IntArray]) -> dict[str, Any]:
        requests = loop.decoding(prompts, self._new(prompts))
        try:
            loop.steps(WARM_STEPS)
            replays = loop.replays
            step = statistics.median(loop.steps(self.sizes.engine_steps))
            replayed = loop.replays - replays
            kernels = self._kernel_seconds(loop)
            waits = self._waits(loop)
            if any(r.status is not Status.RUNNING for r in requests):
                raise AssertionError("not all sequences were decoding in all steps")
        finally:
            loop.stop(requests)
        count = len(prompts)
        length = statistics.mean(map(len, prompts))
        read = step_bytes(self.sizes.model, self.model.dtype)
        read += int(count * length * loop.pool.token_bytes)
        return {
            "ms_step": 1e3 * step,
            "tokens_per_s": count / step,
            "kernels_ms": None if kernels is None else 1e3 * kernels,
            "step_of_kernels": None if kernels is None else step / kernels,
            "of_copy": self.run.share(read / step, "copy"),
            "by_graph": replayed / self.sizes.engine_steps,
            "waits": waits,
        }

    def _waits(self, loop: Loop) -> str | None:
        """Where the host waited for the device while it queued a step; None where it did not, or cannot
        be seen. Overlap is lost there."""
        if self.run.device.type != "cuda" or not loop.overlaps:
            return None
        torch.cuda.set_sync_debug_mode("error")
        try:
            loop.steps(1)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return None

    def _kernel_seconds(self, loop: Loop) -> float | None:
        """The sum of a step's kernels, by CUDA's own profiler; None where that saw none."""
        if self.run.device.type != "cuda":
            return None
        from torch.profiler import ProfilerActivity, profile

        loop.settle()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            loop.steps(PROFILED)
            loop.settle()
            self.run.clock.wait()
        # Microseconds; copies of tables are part of a step.
        total = sum(
            event.time_range.elapsed_us()
            for event in profiler.events() or ()
            if str(event.device_type).endswith("CUDA")
        )
        return total / 1e6 / PROFILED if total else None
