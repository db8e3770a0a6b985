"""Which prefix leaves first: every eviction policy on a burst, on hash traces, and on agents.

The burst: 200 calls with one hot prefix, 50 unique long prompts, then the hot prefix again. Hash traces
have no text, so roles say nothing there; agents are tau-bench's recorded sessions, which take turns at
random, so that every one of them is away for a while. All of it runs on the engine's own tree: hit rates
are tokens, and depend on no machine.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from agentkv.bench.check import Report, progress
from agentkv.bench.trace import write_tau
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.eviction import POLICIES, Marks, Role
from agentkv.engine.sched.request import Request
from agentkv.engine.types import IntArray
from agentkv.trace.call import Call
from agentkv.trace.readers import read
from agentkv.trace.render import Renderer
from agentkv.trace.replay import curve

SHARES = (0.05, 0.25)
MOST_WORSE = 0.01
"""How much of the hit rate a policy may lose against leaf LRU."""

HOT_TOKENS, HOT_CALLS, TAIL_TOKENS = 1500, 200, 80
BURST_CALLS, BURST_TOKENS, POOL_TOKENS = 50, 2000, 16_000


def run(folder: Path | None, *, agents: int = 16, seed: int = 0) -> Report:
    """`folder`: the recorded traces; without it, only the burst runs. `agents`: at a time."""
    report = Report("policies", "Hit rates of tokens by eviction policy")
    progress("policies: a burst of one-time prompts")
    for policy in POLICIES:
        cached = burst(policy, seed)
        report.rows.append(
            {
                "traffic": f"hot prefix of {HOT_TOKENS:,} behind {BURST_CALLS} x {BURST_TOKENS:,}",
                "pool": f"{POOL_TOKENS:,} tokens",
                "policy": policy,
                "rate": cached / (HOT_TOKENS + TAIL_TOKENS),
                "lru": 0.0 if policy == "lru" else report.rows[0]["rate"],
            }
        )
        if policy in ("role", "cost"):
            report.check(
                f"{policy} keeps the hot prefix", f"{cached:,}", f"{HOT_TOKENS:,}",
                cached == HOT_TOKENS,
            )  # fmt: skip
    if folder is None:
        report.notes.append("no recorded traces: give their folder with --traces")
        return report
    hashes = folder / "hash"
    traffic: list[tuple[str, Callable[[], Iterable[Call]]]] = [
        ("Mooncake, tool agents", lambda: read([hashes / "mooncake_toolagent_excerpt74.jsonl"])),
        (
            "Mooncake, conversations",
            lambda: read([hashes / "mooncake_conversation_trace.jsonl.gz"]),
        ),
    ]
    taken = list(_interleaved(folder, agents, seed))
    traffic.append((f"tau-bench, {agents} agents at a time", lambda: iter(taken)))
    for name, calls in traffic:
        progress(f"policies: {name}")
        found = curve(calls, Renderer(), target="agentkv", shares=SHARES, policies=tuple(POLICIES))
        lru = {p.share: p.rate for p in found.points if p.policy == "lru"}
        for point in found.points:
            if point.policy == "any" or point.share is None:
                continue
            report.rows.append(
                {
                    "traffic": name,
                    "pool": f"{point.share:.0%} of what is distinct",
                    "policy": point.policy,
                    "rate": point.rate,
                    "lru": lru[point.share],
                }
            )
            if point.policy != "lru":
                report.check(
                    f"{name}, {point.share:.0%}: {point.policy} against leaf LRU",
                    f"{point.rate - lru[point.share]:+.4f}",
                    f">= {-MOST_WORSE}",
                    point.rate >= lru[point.share] - MOST_WORSE,
                )
        report.notes.append(f"{name}: {found.ceiling:.4f} in an unlimited cache")
    return report


def burst(policy: str, seed: int) -> int:
    """Cached tokens of the hot call behind the burst."""
    cache = KVCache(POOL_TOKENS, eviction=POLICIES[policy])
    rng = np.random.default_rng(seed)
    marks: Marks = ((HOT_TOKENS, int(Role.CORE)), (HOT_TOKENS + TAIL_TOKENS, int(Role.TAIL)))
    hot = _text(rng, HOT_TOKENS)
    for _ in range(HOT_CALLS):
        _call(cache, np.concatenate([hot, _text(rng, TAIL_TOKENS)]), marks)
    for _ in range(BURST_CALLS):
        _call(cache, _text(rng, BURST_TOKENS), ((BURST_TOKENS, int(Role.TAIL)),))
    return _call(cache, np.concatenate([hot, _text(rng, TAIL_TOKENS)]), marks)


def _call(cache: KVCache, ids: IntArray, marks: Marks) -> int:
    request = Request("bench", ids, max_new=0, marks=marks)
    cache.open(request)
    if not cache.grow(request, len(ids)):
        raise RuntimeError("the pool is smaller than one prompt")
    request.committed = len(ids)
    cache.release(request)
    return request.cached_tokens or 0


def _text(rng: np.random.Generator, tokens: int) -> IntArray:
    return rng.integers(0, 1 << 30, tokens).astype(np.int32)


def _interleaved(folder: Path, agents: int, seed: int) -> Iterator[Call]:
    """The recorded sessions, `agents` of them under way at a time; each next call is a random
    one's."""
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as scratch:
        log = Path(scratch) / "tau.jsonl"
        write_tau(folder, log)
        sessions: dict[str | None, list[Call]] = {}
        for call in read([log]):
            sessions.setdefault(call.session, []).append(call)
    rng = random.Random(seed)
    waiting, under_way = list(sessions.values()), list[list[Call]]()
    while waiting or under_way:
        while waiting and len(under_way) < agents:
            under_way.append(waiting.pop(0))
        index = rng.randrange(len(under_way))
        yield under_way[index].pop(0)
        if not under_way[index]:
            del under_way[index]
