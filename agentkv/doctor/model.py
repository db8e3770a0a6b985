"""Checks with the model: that it is here, and that the same prompt is computed once."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.doctor.finding import Finding
from agentkv.doctor.system import ENGINE, ENGINE_MODULES
from agentkv.engine.config import DEFAULT_MODEL

if TYPE_CHECKING:
    from agentkv.engine.types import RequestOutput

PULL = f"agentkv models pull {DEFAULT_MODEL}"
PROMPT = (
    "The harbour office opens at seven. Ships that arrive before then anchor outside the breakwater "
    "and wait for a pilot; in winter that can take until noon. How long does a ship wait, and why?"
)
NEW_TOKENS = 12
POOL = 2048


def model(*, digest: bool = True) -> Finding:
    """The embedded model: where it is, and which weights these are (`digest`)."""
    from agentkv.engine.model.store import list_models

    entry = next(e for e in list_models() if e.name == DEFAULT_MODEL)
    if not entry.pulled:
        return Finding(
            "model", "warning", f"{DEFAULT_MODEL} is not here; it is fetched at first use", PULL
        )
    facts: dict[str, Any] = {"path": str(entry.path), "bytes": entry.size_bytes}
    if digest and importlib.util.find_spec("safetensors") is not None:
        from agentkv.engine.model.fingerprint import fingerprint

        facts["fingerprint"] = fingerprint(entry.path)
        return Finding(
            "model", "ok", f"{DEFAULT_MODEL} {facts['fingerprint'][:12]} in {entry.path}",
            facts=facts,
        )  # fmt: skip
    return Finding("model", "ok", f"{DEFAULT_MODEL} in {entry.path}", facts=facts)


def reuse() -> Finding:
    """The same prompt twice on a real engine: the second call is cached, and answers alike.

    With the embedded model if it is here, or else with a tiny one of random weights.
    """
    missing = [m for m in ENGINE_MODULES if importlib.util.find_spec(m) is None]
    if missing:
        return Finding("reuse", "skipped", f"the engine lacks {', '.join(missing)}", ENGINE)
    from agentkv.engine.model.store import list_models

    entry = next(e for e in list_models() if e.name == DEFAULT_MODEL)
    if entry.pulled:
        return pair(entry.path, DEFAULT_MODEL)
    from agentkv.bench.tiny import build

    with tempfile.TemporaryDirectory(prefix="agentkv-doctor-") as folder:
        return pair(build(Path(folder)), "a tiny random model")


def pair(directory: Path, name: str) -> Finding:
    """`reuse` with the model in `directory`."""
    from agentkv.engine import Engine, SamplingParams

    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
    with Engine(model=str(directory), pool_tokens=POOL, max_model_len=POOL) as engine:
        calls = []
        for _ in range(2):
            start = time.perf_counter()
            output = engine.generate(PROMPT, params)
            calls.append((output, 1000 * (time.perf_counter() - start)))
        exact, page = engine.bit_exact, engine.page_size
    outputs, ms = [output for output, _ in calls], [ms for _, ms in calls]
    return judge(outputs, ms, name, exact=exact, page=page)


def judge(
    outputs: list[RequestOutput], ms: list[float], name: str, *, exact: bool, page: int = 1
) -> Finding:
    """What two equal calls show. `exact`: whether the engine promises equal bits; `page`: tokens."""
    cold, warm = outputs
    prompt, cached = len(warm.prompt_token_ids), warm.cache.cached_tokens
    # The last token of a prompt is always computed: its logits choose the answer.
    expected = (prompt - 1) // page * page
    same = cold.choices[0].token_ids == warm.choices[0].token_ids
    facts = {
        "model": name, "prompt_tokens": prompt, "cached_tokens": [cold.cache.cached_tokens, cached],
        "ms": [round(m, 1) for m in ms], "answers_equal": same, "bit_exact": exact,
    }  # fmt: skip
    text = f"{cached} of {prompt} prompt tokens cached in the second call, on {name}"
    if cached < expected:
        return Finding(
            "reuse", "problem", f"{text}; {expected} were expected", "agentkv bench oracle", facts
        )
    if not same:
        # Without the promise, sums of another order may tip a choice between two close tokens.
        return Finding(
            "reuse", "problem" if exact else "warning",
            f"{text}, but the two greedy answers differ", "agentkv bench parity", facts,
        )  # fmt: skip
    return Finding("reuse", "ok", f"{text}; answers equal", facts=facts)
