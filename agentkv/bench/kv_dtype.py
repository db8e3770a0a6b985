"""What a smaller KV dtype costs in answers, and gains in memory: real prompts on one model.

The weights and the arithmetic stay the same; only what the pool keeps differs. Each prompt is
prefilled over a pool of each dtype (reading its own K/V back, as the engine does), and answered
greedily by itself. Compared are

- the distributions of the next token, `KL(wider || narrower)` in nats: where the prompt ends, and at
  each of its last positions, whose context is the same text for all of them;
- the greedy answers: how many are the same, how many tokens stand at the same place, and where the
  first difference is. Behind it the answers continue different texts, so most of what follows
  differs, whatever the dtype: two runs that differ by rounding alone (float32 and bfloat16) are the
  yardstick.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from agentkv.bench.check import Report, progress
from agentkv.bench.prompts import find_traces, real_requests
from agentkv.engine.kv.pool import KV_DTYPES, SLOT_PAD, KVPool, dtype_name
from agentkv.engine.model.load import LoadedModel, load_model
from agentkv.engine.model.store import resolve
from agentkv.engine.run.calibrate import fp8_scales
from agentkv.engine.run.runner import ModelRunner
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.engine.types import IntArray

KINDS = ("float32", "bfloat16", "fp8")
POSITIONS = 64
"""Of a prompt's end, whose next-token distributions are compared."""

CHUNK = 512
POOL_TOKENS = 65_536
"""Of which the table says how many bytes they take."""

MOST = 0.03
"""Nats. A token's probability then changes, typically, by a factor of 1.28 at most."""

_NONE = np.empty(0, dtype=np.int32)

Pair = tuple[str, str]
PAIRS: tuple[Pair, ...] = (("float32", "bfloat16"), ("float32", "fp8"), ("bfloat16", "fp8"))


@dataclass(slots=True)
class Answer:
    """One prompt on one dtype. `logits`: of its last positions, float32 `[n, vocab]`; seconds of
    the decode steps."""

    logits: torch.Tensor
    tokens: list[int]
    seconds: float
    finite: bool


@dataclass(slots=True)
class Tally:
    """Of one pair of dtypes, over all prompts."""

    at_end: list[float] = field(default_factory=list)
    anywhere: list[float] = field(default_factory=list)
    equal: list[float] = field(default_factory=list)
    """Share of tokens at the same place."""
    first: list[int] = field(default_factory=list)
    """Step of the first difference; the length of the answer where there is none."""

    def add(self, wide: Answer, narrow: Answer) -> None:
        found = divergence(wide.logits, narrow.logits).tolist()
        self.at_end.append(found[-1])
        self.anywhere += found
        same = [a == b for a, b in zip(wide.tokens, narrow.tokens, strict=True)]
        self.equal.append(sum(same) / len(same))
        self.first.append(same.index(False) if not all(same) else len(same))


def divergence(wide: torch.Tensor, narrow: torch.Tensor) -> torch.Tensor:
    """KL(wide || narrow) of each row of logits, in nats."""
    one, other = (torch.log_softmax(x.double(), dim=-1) for x in (wide, narrow))
    return (one.exp() * (one - other)).sum(dim=-1).clamp_min(0.0)


class Bench:
    """One model over a pool of each dtype."""

    def __init__(self, model: LoadedModel, scales: torch.Tensor, slots: int) -> None:
        spec, layers = model.specs()[0], len(model.specs())
        self.vocab_size = model.config.vocab_size
        self.pools = {
            kind: KVPool(
                layers=layers,
                slots=slots,
                kv_heads=spec.num_kv_heads,
                head_dim=spec.head_dim,
                dtype=KV_DTYPES[kind],
                scales=scales,
            )
            for kind in KINDS
        }
        self._runners = {kind: ModelRunner(model, pool) for kind, pool in self.pools.items()}

    def answer(self, kind: str, prompt: IntArray, new_tokens: int) -> Answer:
        """Prefill in chunks, then one token at a time."""
        wanted = min(POSITIONS, len(prompt))
        parts = []
        for low in range(0, len(prompt), CHUNK):
            high = min(low + CHUNK, len(prompt))
            first = max(low, len(prompt) - wanted)
            rows = np.arange(first - low, high - low, dtype=np.int32) if first < high else _NONE
            parts.append(self._step(kind, prompt[low:high], low, rows))
        logits = torch.cat(parts)
        tokens = [int(logits[-1].argmax())]
        began = time.perf_counter()
        for at in range(len(prompt), len(prompt) + new_tokens - 1):
            last = np.array(tokens[-1:], dtype=np.int32)
            found = self._step(kind, last, at, np.zeros(1, dtype=np.int32))
            tokens.append(int(found[0].argmax()))
        seconds = time.perf_counter() - began
        return Answer(logits, tokens, seconds, bool(torch.isfinite(logits).all()))

    def _step(self, kind: str, ids: IntArray, at: int, rows: IntArray) -> torch.Tensor:
        slots = np.arange(at + len(ids), dtype=np.int32)
        return self._runners[kind].forward(
            ForwardBatch(
                input_ids=ids,
                positions=slots[at:],
                out_slots=slots[at:],
                qo_indptr=np.array([0, len(ids)], dtype=np.int32),
                kv_indptr=np.array([0, len(slots)], dtype=np.int32),
                kv_indices=slots,
                logit_rows=rows,
            )
        )


def run(
    model: str,
    *,
    traces: Path | None = None,
    prompts: int = 50,
    new_tokens: int = 32,
    max_prompt: int = 1024,
    dtype: str = "float32",
    threads: int | None = None,
) -> list[Report]:
    """`prompts` real prompts of at most `max_prompt` tokens; weights and arithmetic in `dtype`.

    Raises `TracesMissing`.
    """
    folder = find_traces(traces)
    if threads is not None:
        torch.set_num_threads(threads)
    directory = resolve(model)
    loaded = load_model(directory, dtype=getattr(torch, dtype))
    tokenizer = Tokenizer.load(directory)
    chosen = _choose(Renderer.load(directory, tokenizer), folder, prompts, max_prompt)
    if not chosen:
        raise ValueError(f"no prompt has at most {max_prompt} tokens: raise --max-prompt.")
    scales = fp8_scales(loaded, tokenizer, directory)
    bench = Bench(loaded, scales, max(len(ids) for _, ids in chosen) + new_tokens)
    report = Report(
        "kv-dtype",
        f"{len(chosen)} real prompts of at most {max_prompt} tokens, {new_tokens} greedy tokens "
        f"each, weights and arithmetic in {dtype}",
    )
    tallies = {pair: Tally() for pair in PAIRS}
    seconds = dict.fromkeys(KINDS, 0.0)
    finite = True
    bench.answer("fp8", chosen[0][1], new_tokens)  # first-call costs are nobody's here
    for number, (name, ids) in enumerate(chosen):
        progress(f"kv-dtype: prompt {number + 1} of {len(chosen)}: {name}, {len(ids)} tokens")
        # Each goes first in its turn, so that none has the warmer machine.
        order = [KINDS[(number + i) % len(KINDS)] for i in range(len(KINDS))]
        answers = {kind: bench.answer(kind, ids, new_tokens) for kind in order}
        for pair, tally in tallies.items():
            tally.add(answers[pair[0]], answers[pair[1]])
        for kind, answer in answers.items():
            seconds[kind] += answer.seconds
            finite = finite and answer.finite
    _fill(report, tallies)
    report.check("logits", "finite" if finite else "not finite", "finite", finite)
    mean = statistics.fmean(tallies["bfloat16", "fp8"].anywhere)
    report.check(
        "KL(bfloat16 || fp8), mean of all positions", f"{mean:.4f}", f"<= {MOST}", mean <= MOST
    )
    return [report, _memory(bench, seconds, len(chosen) * (new_tokens - 1))]


def _choose(
    renderer: Renderer, folder: Path, count: int, max_prompt: int
) -> list[tuple[str, IntArray]]:
    found = []
    for name, messages, tools in real_requests(folder):
        ids = renderer.render(messages, tools or None).token_ids
        if len(ids) <= max_prompt:
            found.append((name, ids))
        if len(found) == count:
            break
    return found


def _fill(report: Report, tallies: dict[Pair, Tally]) -> None:
    for pair, tally in tallies.items():
        report.rows.append(
            {
                "pair": f"{pair[0]} || {pair[1]}",
                "end_mean": 1000 * statistics.fmean(tally.at_end),
                "end_median": 1000 * statistics.median(tally.at_end),
                "end_p95": 1000 * _quantile(tally.at_end, 0.95),
                "all_mean": 1000 * statistics.fmean(tally.anywhere),
                "all_p95": 1000 * _quantile(tally.anywhere, 0.95),
                "same_answers": sum(share == 1.0 for share in tally.equal),
                "equal_tokens": statistics.fmean(tally.equal),
                "first_difference": statistics.median(tally.first),
            }
        )
    report.notes.append(
        "KL in thousandths of a nat: where the prompt ends, and at all of its last "
        f"{POSITIONS} positions. equal tokens: share at the same place. first difference: median "
        "step; the answer's length where there is none."
    )


def _memory(bench: Bench, seconds: dict[str, float], steps: int) -> Report:
    report = Report("kv-dtype-memory", "Bytes, and decode of one sequence")
    for kind, pool in bench.pools.items():
        report.rows.append(
            {
                "kv_dtype": dtype_name(pool.dtype),
                "bytes_per_token": pool.token_bytes,
                "mib_for_65536_tokens": pool.token_bytes * (POOL_TOKENS + SLOT_PAD) / 2**20,
                "decode_tokens_per_s": steps / seconds[kind],
                "against_bfloat16": seconds["bfloat16"] / seconds[kind],
                "against_float32": seconds["float32"] / seconds[kind],
            }
        )
    sizes = {kind: pool.token_bytes for kind, pool in bench.pools.items()}
    report.check(
        "fp8: bytes a token",
        f"{sizes['fp8']:,} of {sizes['bfloat16']:,}",
        "half of bfloat16's",
        2 * sizes["fp8"] == sizes["bfloat16"],
    )
    return report


def _quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share))
