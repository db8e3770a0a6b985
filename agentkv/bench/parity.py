"""The engine's greedy answers against transformers': token for token, in float32.

Each prompt is answered cold, again out of the cache (the hit is asserted), and in a batch of
eight. A difference is excused only where transformers' own two best logits are so close that
rounding decides; each such place is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from agentkv.bench.check import Report, progress
from agentkv.bench.peer import Peer, PeerOutput
from agentkv.bench.prompts import find_traces, real_requests
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.model import store
from agentkv.engine.types import IntArray, RequestOutput

TIE = 1e-4
BATCH = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token that differs, and by how much transformers preferred its own."""

    step: int
    ours: int
    theirs: int
    margin: float

    @property
    def tie(self) -> bool:
        return self.margin <= TIE


def first_difference(ours: Sequence[int], theirs: PeerOutput) -> Difference | None:
    """Where two answers part. After that they answer different texts, so nothing more is compared.

    The margin is transformers' best logit minus its second best at that step.
    """
    for step, (a, b) in enumerate(zip(ours, theirs.token_ids, strict=True)):
        if a != b:
            best, second = theirs.logits[step].topk(2).values.tolist()
            return Difference(step, a, b, best - second)
    return None


def run(
    model: str,
    *,
    traces: Path | None = None,
    prompts: int = 24,
    new_tokens: int = 48,
    max_prompt: int = 2048,
    page_size: int = 1,
) -> Report:
    """Compare `prompts` real prompts of at most `max_prompt` tokens. Raises `TracesMissing`."""
    folder = find_traces(traces)
    report = Report("parity", f"Greedy, float32, {new_tokens} tokens a prompt, page {page_size}")
    params = SamplingParams(max_tokens=new_tokens, temperature=0, ignore_eos=True)
    with Engine(model=model, dtype="float32", page_size=page_size, pool_tokens=64 * 1024) as engine:
        peer = Peer(store.resolve(model), "float32")
        chosen = _choose(engine, folder, prompts, max_prompt)
        theirs, cold, warm = [], [], []
        for number, (name, ids) in enumerate(chosen, start=1):
            progress(f"prompt {number} of {len(chosen)}: {name}, {len(ids)} tokens")
            theirs.append(peer.greedy(ids, new_tokens))
            engine.flush()
            cold.append(engine.generate(ids, params))
            warm.append(engine.generate(ids, params))
        batch: list[RequestOutput] = []
        for start in range(0, len(chosen), BATCH):
            engine.flush()
            progress(f"batch of prompts {start + 1} to {min(start + BATCH, len(chosen))}")
            with ThreadPoolExecutor(BATCH) as pool:
                group = [ids for _, ids in chosen[start : start + BATCH]]
                batch.extend(pool.map(lambda ids: engine.generate(ids, params), group))
    _fill(report, chosen, theirs, {"cold": cold, "warm": warm, "batch": batch})
    hits = sum(_is_hit(out, page_size) for out in warm)
    report.check(
        "warm calls came out of the cache", f"{hits} of {len(warm)}", "all", hits == len(warm)
    )
    return report


def _is_hit(out: RequestOutput, page_size: int) -> bool:
    most = out.cache.prompt_tokens - 1
    return out.cache.cached_tokens == most - most % page_size


def _choose(
    engine: Engine, folder: Path, count: int, max_prompt: int
) -> list[tuple[str, IntArray]]:
    chosen = []
    for name, messages, tools in real_requests(folder):
        ids = engine.render(messages, tools or None).token_ids
        if len(ids) <= max_prompt:
            chosen.append((name, ids))
        if len(chosen) == count:
            break
    return chosen


def _fill(
    report: Report,
    chosen: Sequence[tuple[str, IntArray]],
    theirs: Sequence[PeerOutput],
    runs: dict[str, list[RequestOutput]],
) -> None:
    bad = dict.fromkeys(runs, 0)
    ties = 0
    for i, (name, ids) in enumerate(chosen):
        row: dict[str, object] = {"prompt": name, "tokens": len(ids)}
        for kind, outputs in runs.items():
            found = first_difference(outputs[i].token_ids, theirs[i])
            row[kind] = "identical"
            if found is not None:
                verdict = "tie" if found.tie else "DIFFERS"
                row[kind] = f"{verdict} at {found.step}"
                report.notes.append(
                    f"{name}, {kind}: {verdict} at step {found.step}, ours {found.ours}, theirs "
                    f"{found.theirs}, transformers' top two are {found.margin:.2e} apart"
                )
                bad[kind] += not found.tie
                ties += found.tie
        report.rows.append(row)
    for kind, count in bad.items():
        total = len(chosen)
        report.check(
            f"{kind}: identical to transformers", f"{total - count} of {total}", "all", not count
        )
    report.notes.append(f"ties within {TIE:g}: {ties}")
