"""Random load on a real server: many clients, a pool that is too small, clients that vanish.

Sixteen clients ask for prompts out of a prefix tree. Some leave before the first token, some in the
middle of an answer, some have their request aborted, some ask for what can never fit. When the time
is up, nothing may be left behind: no request, no locked page, no memory, and no error that was not
asked for. In float32 every answer to the same prompt must also be the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx

from agentkv.bench.check import Report, progress
from agentkv.bench.clients import LIMIT, MIX, Client, Outcome, Tree
from agentkv.bench.process import ServerProcess

POOL_FACTOR = 1.2
LEVELS = (256, 384, 512, 896)
TINY_LEVELS = (64, 96, 128, 224)


def run(
    model: str,
    *,
    seconds: float = 180.0,
    clients: int = 16,
    seed: int = 0,
    page_size: int = 1,
    dtype: str = "auto",
    tiny: bool = False,
) -> Report:
    """Start the server on a free port of this machine, load it, and look at what is left."""
    levels = TINY_LEVELS if tiny else LEVELS
    pool = int(POOL_FACTOR * sum(levels))
    pool -= pool % page_size
    flags = ["--pool-tokens", str(pool), "--page-size", str(page_size), "--dtype", dtype]
    with ServerProcess(model, flags) as server:
        return asyncio.run(_load(server, levels, seconds, clients, seed))


async def _load(
    server: ServerProcess, levels: Sequence[int], seconds: float, clients: int, seed: int
) -> Report:
    report = Report(
        "load", f"{clients} clients for {seconds:.0f} s, pool {POOL_FACTOR} x the largest prompt"
    )
    outcome = Outcome()
    async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT, trust_env=False) as http:
        await _ready(http)
        info = (await http.get("/model_info")).json()
        tree = Tree(levels, info["vocab_size"], seed)
        rss = [server.rss_mib()]
        started = time.monotonic()
        users = [
            Client(
                server.url,
                info["served_model_name"],
                tree,
                outcome,
                seed * 1000 + i,
                info["max_model_len"],
            )
            for i in range(clients)
        ]
        work = asyncio.gather(*(user.run(started + seconds) for user in users))
        watch = asyncio.create_task(_watch(server, outcome, rss, started, seconds))
        await work
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        alive = server.alive
        left = await _settled(http) if alive else {}
        probe = (await http.get("/health_generate")).status_code if alive else 0
        rss.append(server.rss_mib() if alive else 0.0)
    _judge(report, outcome, left, rss, alive, probe, info["dtype"])
    if not report.ok and server.log:
        report.notes.append("the server's last lines:\n" + server.log[-2000:])
    return report


async def _watch(
    server: ServerProcess, outcome: Outcome, rss: list[float], started: float, seconds: float
) -> None:
    said = started
    while True:
        await asyncio.sleep(0.5)
        rss.append(server.rss_mib())
        if time.monotonic() - said >= 15:
            said = time.monotonic()
            progress(
                f"{said - started:.0f} of {seconds:.0f} s: {sum(outcome.kinds.values())} requests, "
                f"{len(outcome.errors)} errors, {rss[-1]:.0f} MiB"
            )


async def _ready(http: httpx.AsyncClient, within: float = 120.0) -> None:
    """Wait until the model is loaded."""
    deadline = time.monotonic() + within
    while (await http.get("/ready")).status_code != 200:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server was not ready within {within:.0f} s")
        await asyncio.sleep(0.1)


async def _settled(http: httpx.AsyncClient, within: float = 15.0) -> dict[str, Any]:
    """`/server_info` once nothing runs any more, or as it is after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        info: dict[str, Any] = (await http.get("/server_info")).json()
        busy = info["num_requests_running"] + info["num_requests_waiting"] + info["locked_tokens"]
        if not busy or time.monotonic() > deadline:
            return info
        await asyncio.sleep(0.2)


def _judge(
    report: Report,
    outcome: Outcome,
    left: dict[str, Any],
    rss: Sequence[float],
    alive: bool,
    probe: int,
    dtype: str,
) -> None:
    for kind, _ in MIX:
        report.rows.append({"request": kind, "count": outcome.kinds[kind]})
    total = sum(outcome.kinds.values())
    report.rows.append({"request": "all", "count": total})
    start, warm, end = memory_marks(rss)
    report.notes.append(
        f"answered {outcome.completed}: {outcome.prompt_tokens:,} prompt tokens, "
        f"{outcome.cached_tokens:,} cached, {outcome.completion_tokens:,} generated; "
        f"retractions {left.get('retractions_total')}, aborted {left.get('aborted_total')}, "
        f"evicted tokens {left.get('evicted_tokens_total')}"
    )
    report.notes.append(f"memory: start {start:.0f}, after warm-up {warm:.0f}, end {end:.0f} MiB")
    report.check(
        "server alive", f"{alive}, /health_generate {probe}", "200", alive and probe == 200
    )
    report.check(
        "errors that were not asked for",
        str(len(outcome.errors)),
        "0",
        total > 0 and not outcome.errors,
    )
    for name in ("num_requests_running", "num_requests_waiting", "locked_tokens", "private_tokens"):
        report.check(f"{name} at the end", str(left.get(name)), "0", left.get(name) == 0)
    held = left.get("free_tokens", 0) + left.get("evictable_tokens", 0)
    report.check(
        "free + evictable",
        str(held),
        f"pool, {left.get('pool_tokens')}",
        held == left.get("pool_tokens"),
    )
    report.check(
        "memory is flat",
        f"{warm:.0f} -> {end:.0f} MiB",
        "at most +5 % + 16 MiB",
        end <= warm * 1.05 + 16,
    )
    same = f"{outcome.compared - outcome.unequal} of {outcome.compared} repeated prompts"
    if dtype == "float32":
        report.check("same prompt, same answer", same, "all", outcome.unequal == 0)
    else:
        report.notes.append(f"same prompt, same answer ({dtype}, not asserted): {same}")
    report.notes += [f"error: {text[:300]}" for text in outcome.errors[:10]]


def memory_marks(rss: Sequence[float]) -> tuple[float, float, float]:
    """Memory at the start, after warm-up (the largest between 20 % and 40 % of the run), at the end."""
    n = len(rss)
    window = rss[n // 5 : max(n // 5 + 1, 2 * n // 5)]
    return rss[0], max(window), rss[-1]
