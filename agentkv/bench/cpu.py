"""Speed on this machine: the engine beside transformers, one after the other in the same run.

Both sides have the same weights, dtype and threads, and a process of their own. Each repetition
measures A then B, never both at once, so that a slow moment of the machine touches both; the table
shows medians. Prompts are fresh random tokens in
every repetition, so nothing is cached but where the row says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentkv.bench.check import Report, median, progress
from agentkv.bench.peer import PeerProcess
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.model import store
from agentkv.engine.types import IntArray

PREFILL = 512
CONTEXT = 512
NEW = 64
BATCH = 8
LONG = 1800

PREFILL_TARGET = 1.0
DECODE_TARGET = 1.2
BATCH_TARGET = 4.0
WARM_TARGET = 0.1


@dataclass(slots=True)
class Samples:
    """What was measured, one value a repetition: tokens per second, and seconds for `ttft`."""

    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    batch: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)


def run(
    model: str,
    dtypes: Sequence[str],
    *,
    repeats: int = 5,
    threads: int | None = None,
    seed: int = 0,
) -> list[Report]:
    """One report a dtype. Loads the weights twice: once for the engine, once for transformers."""
    return [compare(model, dtype, repeats=repeats, threads=threads, seed=seed) for dtype in dtypes]


def compare(
    model: str, dtype: str, *, repeats: int, threads: int | None = None, seed: int = 0
) -> Report:
    """The engine against transformers in one dtype."""
    rng = np.random.default_rng(seed)
    ours, theirs = Samples(), Samples()
    with (
        Engine(model=model, dtype=dtype, threads=threads, pool_tokens=16 * 1024) as engine,
        PeerProcess(store.resolve(model), dtype, threads) as peer,
    ):
        vocab = engine.tokenizer.vocab_size
        for step in range(repeats + 1):
            progress(f"{dtype}: {'warm-up' if step == 0 else f'repetition {step} of {repeats}'}")
            a, b = (ours, theirs) if step else (Samples(), Samples())
            prompt = _random(rng, PREFILL, vocab)
            a.prefill.append(PREFILL / first_token(engine, prompt))
            b.prefill.append(PREFILL / peer.first_token(prompt))
            one = [_random(rng, CONTEXT, vocab)]
            a.decode.append(decode_rate(engine, one, NEW))
            b.decode.append(peer.decode_rate(one, NEW))
            eight = [_random(rng, CONTEXT, vocab) for _ in range(BATCH)]
            a.batch.append(decode_rate(engine, eight, NEW))
            b.batch.append(peer.decode_rate(eight, NEW))
            long = _random(rng, LONG, vocab)
            a.cold.append(first_token(engine, long))
            a.warm.append(first_token(engine, long, cached=LONG - 1))
            b.cold.append(peer.first_token(long))
    return summarise(dtype, ours, theirs, repeats)


def summarise(dtype: str, ours: Samples, theirs: Samples, repeats: int) -> Report:
    """Medians, ratios and the four targets."""
    report = Report(f"cpu {dtype}", f"Engine and transformers, {dtype}, median of {repeats}")

    def row(what: str, unit: str, a: float, b: float | None, ratio: float | None) -> None:
        report.rows.append(
            {"what": what, "unit": unit, "agentkv": a, "transformers": b, "ratio": ratio}
        )

    prefill = median(ours.prefill), median(theirs.prefill)
    decode = median(ours.decode), median(theirs.decode)
    batch = median(ours.batch), median(theirs.batch)
    cold, warm, their_cold = median(ours.cold), median(ours.warm), median(theirs.cold)
    row(f"prefill {PREFILL} tokens", "tokens/s", *prefill, prefill[0] / prefill[1])
    row(f"decode, 1 stream, context {CONTEXT}", "tokens/s", *decode, decode[0] / decode[1])
    row(f"decode, batch of {BATCH}, context {CONTEXT}", "tokens/s", *batch, batch[0] / batch[1])
    row(f"first token, {LONG:,} tokens cold", "ms", cold * 1e3, their_cold * 1e3, their_cold / cold)
    row(f"first token, {LONG:,} tokens cached", "ms", warm * 1e3, None, cold / warm)

    def target(what: str, value: float, limit: float, *, at_most: bool = False) -> None:
        ok = value <= limit if at_most else value >= limit
        sign = "<=" if at_most else ">="
        report.check(f"{dtype}: {what}", f"{value:.2f}x", f"{sign} {limit:g}x", ok)

    target("prefill against transformers", prefill[0] / prefill[1], PREFILL_TARGET)
    target("single-stream decode against transformers", decode[0] / decode[1], DECODE_TARGET)
    target(f"batch of {BATCH} against the single stream", batch[0] / decode[0], BATCH_TARGET)
    target("cached first token against cold", warm / cold, WARM_TARGET, at_most=True)
    return report


def first_token(engine: Engine, prompt: IntArray, *, cached: int = 0) -> float:
    """Seconds from the call to the first token; `cached` is what must come out of the cache."""
    start = time.perf_counter()
    out = engine.generate(prompt, SamplingParams(max_tokens=1, temperature=0))
    spent = time.perf_counter() - start
    expected = cached - cached % engine.page_size
    if out.cache.cached_tokens < expected or (not cached and out.cache.cached_tokens > 1):
        raise AssertionError(f"{out.cache.cached_tokens} tokens were cached, expected {expected}")
    return spent


def decode_rate(engine: Engine, prompts: Sequence[IntArray], new_tokens: int) -> float:
    """Tokens per second of all prompts together, while all of them are decoding."""
    params = SamplingParams(max_tokens=new_tokens, temperature=0, ignore_eos=True)
    arrivals: list[list[float]] = [[] for _ in prompts]

    def read(index: int) -> None:
        for event in engine.stream(prompts[index], params):
            arrivals[index].extend([time.perf_counter()] * len(event.token_ids))

    workers = [threading.Thread(target=read, args=(i,)) for i in range(len(prompts))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return shared_rate(arrivals)


def shared_rate(arrivals: Sequence[Sequence[float]]) -> float:
    """Tokens per second between the moment the last stream started and the first one ended.

    `arrivals`: for each stream the times of its tokens, ascending. Only then are all of them
    decoding, and no prefill is in the way.
    """
    start = max(times[0] for times in arrivals)
    end = min(times[-1] for times in arrivals)
    if end <= start:
        raise ValueError("the streams never decoded all at once; ask for more new tokens")
    return sum(1 for times in arrivals for at in times if start < at <= end) / (end - start)


def _random(rng: np.random.Generator, n: int, vocab: int) -> IntArray:
    return rng.integers(vocab // 8, vocab, n, dtype=np.int32)
