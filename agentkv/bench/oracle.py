"""Reuse against the oracle: what was cached, beside the longest prefix that was known at all.

Two workloads. The recorded agent sessions go through the real engine, one token a call. The hash
trace drives the tree, the pages and the scheduler without a model. With unlimited memory every
call must reuse exactly what the oracle says; with a small pool, never more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agentkv.bench.blocks import BlockRequest, block_tokens, read_block_trace
from agentkv.bench.check import Report, progress
from agentkv.bench.known import KnownPrefixes, distinct_tokens
from agentkv.bench.prompts import MOONCAKE, TAU, find_traces
from agentkv.demo.traces import read_traces
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.sched.request import Request, Status
from agentkv.engine.sched.scheduler import Scheduler
from agentkv.engine.types import IntArray

POOLS = (0.05, 0.25)
OUTPUT_VOCAB = 32_000


@dataclass(slots=True)
class Tally:
    """Cached tokens of each call, ours and the oracle's, in order."""

    prompt: list[int] = field(default_factory=list)
    ours: list[int] = field(default_factory=list)
    oracle: list[int] = field(default_factory=list)
    refused: int = 0

    def add(self, prompt: int, ours: int, oracle: int) -> None:
        self.prompt.append(prompt)
        self.ours.append(ours)
        self.oracle.append(oracle)

    @property
    def equal(self) -> int:
        return sum(a == b for a, b in zip(self.ours, self.oracle, strict=True))

    @property
    def above(self) -> int:
        return sum(a > b for a, b in zip(self.ours, self.oracle, strict=True))

    def row(self, workload: str, page_size: int, pool: str) -> dict[str, object]:
        total = sum(self.prompt)
        return {
            "workload": workload,
            "page": page_size,
            "pool": pool,
            "calls": len(self.prompt),
            "refused": self.refused,
            "prompt_tokens": total,
            "oracle_cached": sum(self.oracle),
            "cached": sum(self.ours),
            "hit_rate": sum(self.ours) / max(1, total),
            "equal": self.equal,
            "above": self.above,
        }


def run(
    model: str,
    *,
    traces: Path | None = None,
    sessions: int = 20,
    requests: int = 2000,
    page_sizes: Sequence[int] = (1, 16),
    dtype: str = "auto",
    engine_part: bool = True,
) -> Report:
    """Both workloads on each page size. Raises `TracesMissing`."""
    folder = find_traces(traces)
    report = Report("oracle", "Cached tokens beside the longest-known-prefix oracle")
    trace = read_block_trace(folder / MOONCAKE, limit=requests)
    for page_size in page_sizes:
        progress(f"{len(trace):,} requests of the hash trace, page {page_size}")
        _blocks(report, trace, page_size)
    if engine_part:
        for page_size in page_sizes:
            tally = agent_sessions(model, folder / TAU, sessions, page_size, dtype)
            report.rows.append(tally.row(f"{sessions} agent sessions", page_size, "unlimited"))
            _exact(report, f"agent sessions, page {page_size}", tally)
    return report


def agent_sessions(model: str, path: Path, sessions: int, page_size: int, dtype: str) -> Tally:
    """Recorded sessions through the engine, `max_tokens=1`, with room for everything."""
    from agentkv.engine import Engine, SamplingParams
    from agentkv.engine.errors import ContextLengthExceeded

    recorded = read_traces(path, limit=sessions)
    params = SamplingParams(max_tokens=1, temperature=0)
    known, tally = KnownPrefixes(), Tally()
    # A first look at the prompts, to size the pool: what they have in common is held once.
    with Engine(model=model, dtype=dtype, page_size=page_size, pool_tokens=1024) as small:
        limit = small.max_model_len
        prompts = [
            small.render(messages, list(tools)).token_ids
            for session in recorded
            for messages, tools in session.requests()
        ]
    fitting = [ids for ids in prompts if len(ids) < limit]
    pool = distinct_tokens(fitting) + len(fitting) * page_size + limit
    with Engine(model=model, dtype=dtype, page_size=page_size, pool_tokens=pool) as engine:
        for number, session in enumerate(recorded, start=1):
            progress(f"session {number} of {len(recorded)}, page {page_size}: {session.id}")
            for messages, tools in session.requests():
                prompt = engine.render(messages, list(tools))
                try:
                    out = engine.generate(prompt, params, session=session.id)
                except ContextLengthExceeded:
                    if len(prompt.token_ids) < engine.max_model_len:
                        raise
                    tally.refused += 1
                    continue
                ids = prompt.token_ids
                tally.add(len(ids), out.cache.cached_tokens, known.longest(ids, page_size))
                known.add(ids, out.token_ids)
    return tally


def drive(requests: Iterable[BlockRequest], pages: int, page_size: int, *, seed: int = 0) -> Tally:
    """A trace through scheduler, tree and pages, one request after the other, without a model.

    Sampled tokens come from a seed. Page conservation is checked after every step.
    """
    cache = KVCache(pages, page_size)
    scheduler = Scheduler(cache, max_batch_tokens=512)
    known, tally = KnownPrefixes(), Tally()
    for number, asked in enumerate(requests):
        outputs = block_tokens(number, asked.output_tokens, OUTPUT_VOCAB, seed + 1)
        request = Request(str(number), asked.prompt, max_new=asked.output_tokens)
        scheduler.submit(request)
        while request.status is not Status.FINISHED:
            step = scheduler.schedule()
            if step is None:
                raise AssertionError(f"request {number} waits for ever")
            sampled = [
                int(outputs[len(w.request.output)]) if w.samples else None for w in step.works
            ]
            scheduler.commit(step, sampled)
            scheduler.check()
        tally.add(
            len(asked.prompt), request.cached_tokens or 0, known.longest(asked.prompt, page_size)
        )
        known.add(asked.prompt, request.output.tolist())
    scheduler.check(deep=True)
    return tally


def _blocks(report: Report, trace: Sequence[BlockRequest], page_size: int) -> None:
    whole = sum(len(r.prompt) + r.output_tokens + page_size for r in trace)
    distinct = distinct_tokens(_sequences(trace))
    largest = max(len(r.prompt) + r.output_tokens for r in trace)
    tally = drive(trace, -(-whole // page_size), page_size)
    report.rows.append(tally.row("hash trace", page_size, "unlimited"))
    _exact(report, f"hash trace, page {page_size}, unlimited", tally)
    for share in POOLS:
        tokens = max(int(distinct * share), largest + page_size)
        tally = drive(trace, -(-tokens // page_size), page_size)
        report.rows.append(tally.row("hash trace", page_size, f"{share:.0%} ({tokens:,})"))
        report.check(
            f"hash trace, page {page_size}, pool {share:.0%}: never above the oracle",
            f"{tally.above} of {len(tally.ours)} above",
            "0",
            tally.above == 0,
        )


def _sequences(trace: Sequence[BlockRequest], seed: int = 0) -> list[IntArray]:
    return [
        np.concatenate([r.prompt, block_tokens(i, r.output_tokens, OUTPUT_VOCAB, seed + 1)])
        for i, r in enumerate(trace)
    ]


def _exact(report: Report, name: str, tally: Tally) -> None:
    calls = len(tally.ours)
    report.check(
        f"{name}: equal to the oracle",
        f"{tally.equal} of {calls} calls",
        "every call",
        calls > 0 and tally.equal == calls,
    )
