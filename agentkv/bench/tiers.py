"""Multi-turn traffic on a pool that is too small for it: the pool alone, with host memory, with disk.

The shape of HiCache's workload, small: 16 clients, 5 turns each, 512 new tokens and 64 generated a
turn; clients take turns round robin, so that each prefix comes back as late as can be. The pool
holds a quarter of what all clients together need. Beside the runs: an oracle (a pool that holds
everything) and a forced miss (the same code path with the cache off). The runs alternate, turn by
turn, so that a machine that is slow for a while is slow for all of them.

`restart` stops an engine with a disk tier after a long session, starts another one on the same
directory, and asks for the next turn: time to first token against a cold engine's.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.bench.check import Report, progress
from agentkv.engine import Engine, RequestOutput, SamplingParams

SETTLE_SECONDS = 30.0


@dataclass(slots=True)
class Outcome:
    """One run of the workload. `seconds`: in which calls were under way."""

    seconds: float = 0.0
    outputs: list[RequestOutput] = field(default_factory=list)
    answers: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    @property
    def prompt(self) -> int:
        return sum(o.cache.prompt_tokens for o in self.outputs)

    @property
    def cached(self) -> int:
        return sum(o.cache.cached_tokens for o in self.outputs)

    def tier(self, name: str) -> int:
        return sum(o.cache.cached_by_tier.get(name, 0) for o in self.outputs)

    @property
    def generated(self) -> int:
        return sum(len(tokens) for tokens in self.answers.values())

    def ttft(self, share: float) -> float:
        """Milliseconds, time in the queue included."""
        return float(np.quantile([o.times.ttft for o in self.outputs], share))

    def prefill_ms(self, share: float) -> float:
        """From admission to the first token; other calls are computed in the same steps."""
        return float(np.quantile([o.times.prefill for o in self.outputs], share))


def run(
    model: str,
    *,
    clients: int = 16,
    turns: int = 5,
    new_tokens: int = 512,
    answer_tokens: int = 64,
    pool_share: float = 0.25,
    parallel: int = 4,
    page_size: int = 16,
    dtype: str = "auto",
    host: str = "3GiB",
    seed: int = 0,
) -> Report:
    """One workload on each arrangement of tiers, from an empty cache, side by side. `host`: size of
    the host tier."""
    total = clients * turns * (new_tokens + answer_tokens)
    longest = turns * (new_tokens + answer_tokens)
    pool = max(int(total * pool_share), 2 * longest)
    report = Report(
        "tiers",
        f"{clients} clients x {turns} turns x {new_tokens} in / {answer_tokens} out, "
        f"{total:,} tokens, pool {pool:,}, {parallel} at a time, page {page_size}",
    )
    base: dict[str, Any] = {
        "model": model,
        "dtype": dtype,
        "page_size": page_size,
        "max_running": parallel,
    }
    cases: dict[str, dict[str, Any]] = {
        "cache off": {"pool_tokens": pool, "prefix_cache": False},
        "pool only": {"pool_tokens": pool},
        "pool + host": {"pool_tokens": pool, "host_cache": host},
        "pool + disk": {"pool_tokens": pool, "disk_cache": ""},
        "oracle (all in the pool)": {"pool_tokens": total + longest},
    }
    found: dict[str, Outcome] = {}
    with ExitStack() as stack:
        running: dict[str, _Traffic] = {}
        for name, options in cases.items():
            progress(f"tiers: {name} starts")
            if "disk_cache" in options:
                folder = tempfile.TemporaryDirectory(prefix="agentkv-bench-")
                options = {**options, "disk_cache": stack.enter_context(folder)}
            engine = stack.enter_context(Engine(**{**base, **options}))
            running[name] = _Traffic(engine, clients, turns, new_tokens, answer_tokens, seed)
        for turn in range(turns):
            order = list(running.items())
            for name, traffic in order[turn % len(order) :] + order[: turn % len(order)]:
                progress(f"tiers: turn {turn + 1} of {turns}, {name}")
                traffic.take(turn, parallel)
        for name, traffic in running.items():
            traffic.engine.check()
            outcome = found[name] = traffic.outcome
            report.rows.append(
                {
                    "run": name,
                    "hit": outcome.cached / outcome.prompt,
                    "host": outcome.tier("host"),
                    "disk": outcome.tier("disk"),
                    "computed": outcome.prompt - outcome.cached,
                    "ttft_p50_ms": outcome.ttft(0.5),
                    "ttft_p95_ms": outcome.ttft(0.95),
                    "prefill_p50_ms": outcome.prefill_ms(0.5),
                    "generated_per_s": outcome.generated / outcome.seconds,
                    "tokens_per_s": outcome.prompt / outcome.seconds,
                    "seconds": outcome.seconds,
                }
            )
    _compare(report, found)
    return report


def _compare(report: Report, found: dict[str, Outcome]) -> None:
    alone, oracle = found["pool only"], found["oracle (all in the pool)"]
    least_cut = 1 - oracle.ttft(0.5) / alone.ttft(0.5)
    report.notes.append(
        "No tier can do better than the oracle, which has everything in the pool: median TTFT "
        f"{-100 * least_cut:+.0f} %, throughput {alone.seconds / oracle.seconds:.2f}x of the pool's. Tokens "
        f"computed: {(oracle.prompt - oracle.cached) / (alone.prompt - alone.cached):.2f}x. Where the "
        "machine spends its time on decoding, the last two differ."
    )
    for name in ("pool + host", "pool + disk"):
        tiered = found[name]
        rate, least = tiered.cached / tiered.prompt, 2 * alone.cached / alone.prompt
        best = oracle.cached / oracle.prompt
        report.check(
            f"{name}: hit rate",
            f"{rate:.3f} (pool only {least / 2:.3f}, oracle {best:.3f})",
            "twice the pool's, or 0.95 of the oracle's",
            rate >= min(least, 0.95 * best),
        )
        cut = 1 - tiered.ttft(0.5) / alone.ttft(0.5)
        report.check(f"{name}: median TTFT", f"{-100 * cut:+.0f} %", "-56 %", cut >= 0.56)
        gain = alone.seconds / tiered.seconds
        report.check(f"{name}: throughput", f"{gain:.2f}x", "2x", gain >= 2)
    for name, outcome in found.items():
        if name == "cache off":
            continue
        same = sum(outcome.answers[k] == v for k, v in found["cache off"].answers.items())
        report.check(
            f"{name}: answers as with the cache off",
            f"{same} of {len(outcome.answers)}",
            "all",
            same == len(outcome.answers),
        )


class _Traffic:
    """The clients of one engine, and what they have seen of it."""

    def __init__(
        self,
        engine: Engine,
        clients: int,
        turns: int,
        new_tokens: int,
        answer_tokens: int,
        seed: int,
    ) -> None:
        shape = (clients, turns, new_tokens)
        self.engine = engine
        self.outcome = Outcome()
        self._new = np.random.default_rng(seed).integers(100, engine.vocab_size, shape)
        self._history = [np.empty(0, dtype=np.int32) for _ in range(clients)]
        self._params = SamplingParams(max_tokens=answer_tokens, temperature=0.0, ignore_eos=True)
        self._lock = threading.Lock()

    def take(self, turn: int, parallel: int) -> None:
        """One turn of each client, in their order, `parallel` calls at a time."""
        began = time.perf_counter()
        with ThreadPoolExecutor(parallel) as pool:
            for _ in pool.map(lambda client: self._call(client, turn), range(len(self._history))):
                pass
        self.outcome.seconds += time.perf_counter() - began
        self._settle()

    def _call(self, client: int, turn: int) -> None:
        new = self._new[client, turn].astype(np.int32)
        prompt = np.concatenate([self._history[client], new])
        out = self.engine.generate(prompt, self._params, session=f"client {client}")
        tokens = out.choices[0].token_ids
        with self._lock:
            self.outcome.outputs.append(out)
            self.outcome.answers[client, turn] = tokens
            self._history[client] = np.concatenate([prompt, np.array(tokens, dtype=np.int32)])

    def _settle(self) -> None:
        """Let what this engine still writes be nobody else's delay."""
        last, deadline = None, time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            now = {n: t.get("stored_tokens_total") for n, t in self.engine.stats()["tiers"].items()}
            if now == last:
                return
            last = now
            time.sleep(0.3)


def restart(
    model: str,
    *,
    turns: int = 30,
    new_tokens: int = 48,
    answer_tokens: int = 16,
    page_size: int = 16,
    dtype: str = "auto",
    repeats: int = 3,
    seed: int = 0,
) -> Report:
    """TTFT of the turn after a restart, against the same turn on a cold engine."""
    report = Report(
        "restart", f"A session of {turns} turns; the server stops, starts, and is asked again"
    )
    base: dict[str, Any] = {"model": model, "dtype": dtype, "page_size": page_size}
    rng = np.random.default_rng(seed)
    params = SamplingParams(max_tokens=answer_tokens, temperature=0.0, ignore_eos=True)
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as folder:
        prompt = np.empty(0, dtype=np.int32)
        with Engine(**base, disk_cache=folder) as engine:
            for _ in range(turns):
                new = rng.integers(100, engine.vocab_size, new_tokens).astype(np.int32)
                out = engine.generate(np.concatenate([prompt, new]), params, session="long")
                prompt = np.concatenate(
                    [prompt, new, np.array(out.choices[0].token_ids, dtype=np.int32)]
                )
            new = rng.integers(100, engine.vocab_size, new_tokens).astype(np.int32)
        prompt = np.concatenate([prompt, new])
        files = sum(f.stat().st_size for f in (Path(folder) / "groups").iterdir())
        cold: list[float] = []
        warm: list[float] = []
        shares: list[float] = []
        answers = set()
        for number in range(repeats):
            progress(f"restart: {number + 1} of {repeats}")
            with Engine(**base) as engine:
                engine.generate(prompt[-40:], params)  # first-call costs are nobody's here
                out = engine.generate(prompt, params)
                cold.append(out.times.ttft)
                answers.add(out.choices[0].token_ids)
            with Engine(**base, disk_cache=folder) as engine:
                engine.generate(prompt[-40:], params)
                out = engine.generate(prompt, params)
                warm.append(out.times.ttft)
                shares.append(out.cache.cached_by_tier["disk"] / len(prompt))
                answers.add(out.choices[0].token_ids)
                expected = out.cache.load
    report.rows.append(
        {
            "prompt": len(prompt),
            "from_disk": statistics.median(shares),
            "cold_ttft_ms": statistics.median(cold),
            "restarted_ttft_ms": statistics.median(warm),
            "ratio": statistics.median(warm) / statistics.median(cold),
            "files_mib": files / 2**20,
        }
    )
    if expected is not None:
        report.notes.append(
            f"expected: {expected.load_ms:.0f} ms to bring {expected.tokens} tokens back, "
            f"{expected.compute_ms:.0f} ms to compute them."
        )
    report.check("from disk after the restart", f"{min(shares):.3f}", ">= 0.9", min(shares) >= 0.9)
    report.check("answers, cold and restarted", f"{len(answers)} different", "1", len(answers) == 1)
    return report
