"""Replay of recorded traffic, and what it costs: known rates, a naive model beside ours, speed."""

from __future__ import annotations

import gzip
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentkv.bench.check import Report, progress
from agentkv.engine.why import common_prefix
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.readers import read
from agentkv.trace.render import Renderer
from agentkv.trace.replay import Replay, curve

SHARES = (0.01, 0.05, 0.25)
KNOWN_MOONCAKE, KNOWN_WEKA = 0.366, 0.991


def hash_traces(folder: Path) -> Report:
    """Mooncake's conversations and the WEKA sessions: ideal rates, and the capacity curve."""
    report = Report("trace hash", "Hash traces: hit rates of blocks, unlimited and by pool size")
    began = time.perf_counter()
    mooncake = folder / "hash" / "mooncake_conversation_trace.jsonl.gz"
    renderer = Renderer()
    progress("trace: mooncake")
    replay, hits, blocks, requests = Replay(cache_model("agentkv")), 0, 0, 0
    prompts: list[list[int]] = []
    for call in read([mooncake]):
        assert call.blocks is not None
        hit = replay.call(call, renderer.render(call))
        hits += -(-hit.cached // call.block_size)
        blocks += len(call.blocks)
        requests += 1
        prompts.append(call.blocks.tolist())
    rate = hits / blocks
    report.check(
        f"mooncake, {requests:,} requests, blocks from an unlimited cache",
        f"{rate:.3f}",
        f"{KNOWN_MOONCAKE}",
        round(rate, 3) == KNOWN_MOONCAKE and requests == 12_031,
    )
    found = curve(lambda: read([mooncake]), renderer, target="agentkv", shares=SHARES)
    distinct = len({b for p in prompts for b in p})
    for point in found.points:
        row: dict[str, Any] = {
            "trace": "mooncake",
            "policy": point.policy,
            "share": 1.0 if point.share is None else round(point.share, 4),
            "token_rate": point.rate,
            "naive_lru_blocks": None,
        }
        if point.share is not None and point.policy == "lru":
            naive = naive_lru(prompts, int(point.share * distinct))
            ours = _block_rate(prompts, int(point.share * distinct))
            row["naive_lru_blocks"] = naive
            report.check(
                f"mooncake at {point.share:.0%}: leaf LRU, blocks",
                f"{ours:.4f}",
                f">= naive {naive:.4f}",
                ours >= naive,
            )
        report.rows.append(row)
    worst = max(p.rate for p in found.points)
    report.check(
        "no point of the curve above the ceiling",
        f"{worst:.4f}",
        f"<= {found.ceiling:.4f}",
        worst <= found.ceiling + 1e-12,
    )
    progress("trace: weka")
    last: dict[str, Any] = {}
    shares: list[float] = []
    for call in read([folder / "hash" / "weka_claude_code_sessions.jsonl.gz"]):
        name = call.session or ""
        if "/" in name:
            continue  # sub-agents have prompts of their own
        ids = renderer.render(call).prompt.token_ids
        if name in last:
            shares.append(common_prefix(last[name], ids) / len(ids))
        last[name] = ids
    median = statistics.median(shares)
    report.check(
        f"weka, {len(last)} sessions, hit with the previous request, median",
        f"{median:.3f} (mean {statistics.mean(shares):.3f})",
        f"{KNOWN_WEKA}",
        round(median, 3) == KNOWN_WEKA,
    )
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    report.check("time of all this", f"{seconds:.1f} s", "< 60 s", seconds < 60)
    report.check("memory at most", f"{peak:.2f} GiB", "< 2 GiB", peak < 2)
    return report


def naive_lru(prompts: Sequence[Sequence[int]], size: int) -> float:
    """Share of blocks found by a plain LRU of blocks: a list of ids, the oldest goes. Written
    without the tree, to be compared with it."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = total = 0
    for prompt in prompts:
        total += len(prompt)
        for block in prompt:
            if block not in held:
                break
            hits += 1
        for block in prompt:
            held[block] = None
            held.move_to_end(block)
        while len(held) > size:
            held.popitem(last=False)
    return hits / total


def _block_rate(prompts: Sequence[Sequence[int]], size: int) -> float:
    """The same for our tree with leaf LRU."""
    import numpy as np

    from agentkv.trace.caches.radix import RadixCache
    from agentkv.trace.call import Call, Where

    # Two tokens a block: a whole prompt of blocks may be found, as in the naive model.
    cache = RadixCache("lru", size=2 * size, policy="lru")
    renderer = Renderer()
    hits = total = 0
    for number, prompt in enumerate(prompts):
        blocks = np.array(prompt, dtype=np.int32)
        call = Call(Where("", number), blocks=blocks, block_size=2, length=2 * len(blocks))
        hits += cache.call(call, renderer.render(call), ()).cached // 2
        total += len(prompt)
    return hits / total


def tau(folder: Path) -> Report:
    """tau-bench's calls under two chat templates: one of them moves the tools."""
    from agentkv.trace.analyse import analyse

    report = Report("trace tau", "1,229 calls of tau-bench under two chat templates")
    names = {
        "Qwen2.5": "Qwen-Qwen2.5-7B-Instruct.jinja",
        "Mistral-Nemo": "mistralai-Mistral-Nemo-Instruct-2407.jinja",
    }
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as scratch:
        log = Path(scratch) / "tau.jsonl"
        write_tau(folder, log)
        for name, file in names.items():
            progress(f"trace: tau under {name}")
            found = analyse(
                lambda: read([log]), renderer=Renderer(template=folder / "chat_templates" / file)
            ).to_dict()
            causes = [f"{c['reason']} {c['tokens_lost']:,}" for c in found["causes"]]
            report.rows.append(
                {
                    "template": name,
                    "requests": found["requests"],
                    "hit_rate": found["hit_rate"]["now"],
                    "ceiling": found["hit_rate"]["ceiling"],
                    "causes": "; ".join(causes) or "none",
                }
            )
            reasons = {c["reason"] for c in found["causes"]}
            wanted = {"template"} if name == "Mistral-Nemo" else set()
            report.check(
                f"{name}: causes", ", ".join(sorted(reasons)) or "none",
                ", ".join(wanted) or "none", reasons == wanted,
            )  # fmt: skip
    return report


def write_tau(folder: Path, out: Path) -> int:
    """The calls of the recorded sessions as chat requests, one JSON line each; how many."""
    tools = json.loads((folder / "tools" / "tau_airline_tools.json").read_text())
    count = 0
    with (
        gzip.open(folder / "agent" / "tau_airline_gpt4o.sessions.jsonl.gz", "rt") as lines,
        out.open("w") as log,
    ):
        for line in lines:
            session = json.loads(line)
            messages = session["messages"]
            for index, message in enumerate(messages):
                if message["role"] != "assistant":
                    continue
                record = {
                    "model": session["model"],
                    "messages": messages[:index],
                    "tools": tools,
                    "session_id": session["session_id"],
                    "response": {"choices": [{"message": message}]},
                }
                log.write(json.dumps(record) + "\n")
                count += 1
    return count


def speed(requests: int = 10_000, tokens: int = 3_400) -> Report:
    """A log of so many requests of so many tokens: time, and memory against four times the length."""
    report = Report("trace speed", f"`trace report` on {tokens:,}-token requests")
    peaks: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as scratch:
        for count in (requests, 4 * requests):
            progress(f"trace: {count:,} requests")
            log = Path(scratch) / f"{count}.jsonl"
            size = write_long(log, count, tokens)
            code = (
                "import sys,time,resource;from agentkv.trace.analyse import analyse;"
                "from agentkv.trace.readers import read;from agentkv.trace.render import Renderer;"
                "t=time.perf_counter();"
                f"r=analyse(lambda: read([{str(log)!r}]),renderer=Renderer()).to_dict();"
                "print(r['requests'],r['prompt_tokens'],time.perf_counter()-t,"
                "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024)"
            )
            out = subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True
            ).stdout.split()
            peaks[count] = float(out[3])
            report.rows.append(
                {
                    "requests": int(out[0]),
                    "prompt_tokens": int(out[1]),
                    "log_mib": size / 2**20,
                    "seconds": float(out[2]),
                    "peak_mib": float(out[3]),
                }
            )
    first = report.rows[0]
    report.check(
        f"{requests:,} requests of {tokens:,} tokens",
        f"{first['seconds']:.1f} s",
        "< 60 s",
        first["seconds"] < 60,
    )
    small, large = peaks[requests], peaks[4 * requests]
    report.check(
        "memory of four times the log", f"{large / small:.2f}x", "< 1.5x", large < 1.5 * small
    )
    return report


def write_long(out: Path, count: int, tokens: int, seed: int = 0) -> int:
    """A log of agents' sessions with shared rules, of `tokens` tokens a request on average; a clock
    in every third session. Returns its bytes."""
    rng = random.Random(seed)
    words = [f"{a}{b}" for a in ("ship", "load", "mark", "note", "rout") for b in range(400)]

    def text(n: int) -> str:
        # Such a word is two tokens.
        return " ".join(rng.choices(words, k=n // 2))

    turns = 10
    rules = text(35 * tokens // 100)
    # On average, a prompt holds 5.5 questions and 4.5 answers.
    asked, answered = 78 * tokens // 1000, 49 * tokens // 1000
    written = 0
    with out.open("w") as log:
        for session in range(-(-count // turns)):
            history: list[dict[str, str]] = []
            system = rules
            for turn in range(min(turns, count - session * turns)):
                if session % 3 == 0:
                    system = f"Time: 2025-03-{session % 28 + 1:02} 10:{turn:02}:07.\n{rules}"
                history.append({"role": "user", "content": text(asked)})
                answer = {"role": "assistant", "content": text(answered)}
                record = {
                    "model": "m",
                    "messages": [{"role": "system", "content": system}, *history],
                    "session_id": f"s{session}",
                    "timestamp": 1_750_000_000 + session * 100 + turn,
                    "response": {"choices": [{"message": answer}]},
                }
                line = json.dumps(record) + "\n"
                written += len(line)
                log.write(line)
                history.append(answer)
    return written
