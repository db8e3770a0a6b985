"""What bringing K/V back was expected to take, beside what it took; and a disk that becomes slow.

`loads`: prompts of several lengths, round after round, from host memory and from disk. The expected
figure is the one that the decision was made with, taken before the load taught the model anything.

`throttle`: reads of the disk are made to sleep, so that loading loses to computing. How many loads
does it take until it is declined, and how long, once the disk is fast again, until it is used?
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentkv.bench.check import Report, median, progress
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.types import IntArray

ONE = SamplingParams(max_tokens=1, temperature=0.0)
WITHIN = 0.3


@dataclass(frozen=True, slots=True)
class Seen:
    """One load."""

    tier: str
    tokens: int
    expected: float
    measured: float

    @property
    def off(self) -> float:
        """How far the expectation was from what came, as a share of that."""
        return abs(self.expected - self.measured) / self.measured


def run(
    model: str,
    *,
    sizes: Sequence[int] = (128, 256, 512, 1024, 2048),
    rounds: int = 6,
    page_size: int = 16,
    dtype: str = "auto",
    patience: float = 60.0,
    seed: int = 0,
) -> list[Report]:
    """Both parts on one model. `patience`: most seconds to wait for a disk to be used again."""
    base: dict[str, Any] = {
        "model": model,
        "dtype": dtype,
        "page_size": page_size,
        "pool_tokens": max(sizes) + max(sizes) // 4,
    }
    rng = np.random.default_rng(seed)
    found: list[Seen] = []
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as folder:
        progress("costs: host")
        with Engine(**base, host_cache="2GiB", load_policy="always") as engine:
            prompts = _prompts(engine, sizes, rng)
            for prompt in prompts:
                engine.generate(prompt, ONE)
            with _watched(engine, found):
                for _ in range(rounds):  # round robin: each has left the pool when it comes back
                    for prompt in prompts:
                        engine.generate(prompt, ONE)
        progress("costs: disk")
        with Engine(**base, disk_cache=folder, host_cache="2GiB") as engine:
            for prompt in prompts:
                engine.generate(prompt, ONE)
        with (
            Engine(**base, disk_cache=folder, load_policy="always") as engine,
            _watched(engine, found),
        ):
            for _ in range(rounds):
                for prompt in prompts:
                    engine.generate(prompt, ONE)
                    engine.flush()
        progress("costs: throttle")
        with Engine(**base, disk_cache=folder) as engine:
            slow = _throttle(engine, prompts[-1], patience)
    return [_loads(found, 2 * len(sizes)), slow]


def _loads(found: list[Seen], warm: int) -> Report:
    report = Report("costs", f"Loads: expected and measured, after the first {warm}")
    for tier in ("host", "disk"):
        loads = [s for s in found if s.tier == tier]
        settled, close = loads[warm:], 0
        sizes = sorted({s.tokens for s in settled})
        for tokens in sizes:
            same = [s for s in settled if s.tokens == tokens]
            expected = median([s.expected for s in same])
            measured = median([s.measured for s in same])
            close += abs(expected - measured) <= WITHIN * measured
            report.rows.append(
                {
                    "tier": tier,
                    "tokens": tokens,
                    "loads": len(same),
                    "expected_ms": 1000 * expected,
                    "measured_ms": 1000 * measured,
                    "single_loads_within_30_%": sum(s.off <= WITHIN for s in same),
                }
            )
        # Medians: on a machine that does other things, one load of a millisecond is no measure.
        report.check(
            f"{tier}: sizes whose median was expected within 30 %",
            f"{close} of {len(sizes)}",
            "all",
            bool(sizes) and close == len(sizes),
        )
        if loads:
            single = sum(s.off <= WITHIN for s in settled)
            report.notes.append(
                f"{tier}: {single} of {len(settled)} single loads within 30 %; the first load of "
                f"all was {100 * loads[0].off:.0f} % off."
            )
    return report


def _throttle(engine: Engine, prompt: IntArray, patience: float) -> Report:
    report = Report("throttle", "A disk that becomes slow, and fast again")
    lower = engine._core.lower
    assert lower is not None and lower.store is not None
    compute = lower.costs.estimate({"disk": len(prompt)}).compute
    size = len(prompt) * lower.costs.token_bytes["disk"]

    def ask() -> tuple[int, float, float, float]:
        engine.flush()
        out = engine.generate(prompt, ONE)
        load = out.cache.load
        assert load is not None
        return out.cache.cached_by_tier["disk"], load.load_ms, load.compute_ms, out.times.ttft

    def row(what: str, asked: tuple[int, float, float, float]) -> None:
        names = ("from_disk", "expected_load_ms", "expected_compute_ms", "ttft_ms")
        report.rows.append({"what": what, **dict(zip(names, asked, strict=True))})
        progress(f"costs: {what}: {asked[0]} tokens from disk")

    row("fast", ask())
    with throttled(lower.store, size / (3 * compute)):
        loads = 0
        while (asked := ask())[0] and loads < 6:
            loads += 1
            row("slow: loaded", asked)
        row("slow: declined", asked)
        declined = asked[0] == 0
    began = time.monotonic()
    while not (asked := ask())[0] and time.monotonic() - began < patience:
        time.sleep(0.25)
    waited = time.monotonic() - began
    row("fast again", asked)
    report.check("loads until a slow disk is declined", str(loads), "<= 3", declined and loads <= 3)
    report.check(
        "seconds until a fast one is used again",
        f"{waited:.0f}",
        "< 60",
        asked[0] > 0 and waited < 60,
    )
    return report


@contextmanager
def throttled(store: Any, bytes_per_second: float) -> Iterator[None]:
    """Make a store's reads sleep as if it gave so many bytes a second."""
    read = store.read

    def slow(*arguments: Any) -> Iterator[memoryview]:
        began, due = time.perf_counter(), 0.0
        for page in read(*arguments):
            due += len(page) / bytes_per_second
            late = due - (time.perf_counter() - began)
            if late > 0.002:
                time.sleep(late)
            yield page

    store.read = slow
    try:
        yield
    finally:
        store.read = read


@contextmanager
def _watched(engine: Engine, found: list[Seen]) -> Iterator[None]:
    """Note each load, and what was expected of it a moment before."""
    lower = engine._core.lower
    assert lower is not None
    costs = lower.costs
    moved = costs.moved

    def note(tier: str, tokens: int, seconds: float, *, parts: int = 1) -> None:
        expected = costs.estimate({tier: tokens}, parts={tier: parts}).load
        found.append(Seen(tier, tokens, expected, seconds))
        moved(tier, tokens, seconds, parts=parts)

    costs.moved = note  # type: ignore[method-assign]
    try:
        yield
    finally:
        costs.moved = moved  # type: ignore[method-assign]


def _prompts(engine: Engine, sizes: Sequence[int], rng: np.random.Generator) -> list[IntArray]:
    return [rng.integers(100, engine.vocab_size, n).astype(np.int32) for n in sizes]
