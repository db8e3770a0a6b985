"""The whole engine over the kernels, under the interpreter: the tokens are those of the CPU's attention.

Run by tests/kernels/test_interpreted.py; by hand: TRITON_INTERPRET=1 pytest <this file>. Each dtype of
the pool and each page size comes once by default, the rest of their pairs as slow tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.engine import Engine, RequestOutput, SamplingParams
from tests.kernels.interpreter import cases  # noqa: F401  (patches the interpreter)

Make = Callable[..., Engine]
CHUNK = 20
"""Budget of a step: prompts of 32 tokens are cut, and share steps with tokens being decoded."""


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


TILES = """
[decode.interpreter.64]
8 = [16, 32, 4, 1, 32, 4]
32 = [16, 32, 4, 1, 32, 4]
"""


@pytest.fixture(autouse=True)
def short_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding cuts its keys into pieces of 32, so that these short prompts have several."""
    table = tmp_path / "tiles.toml"
    table.write_text(TILES)
    monkeypatch.setenv("AGENTKV_TUNING", str(table))


def ids(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 260, count).tolist()


def run(engine: Engine, prompts: list[list[int]], new: int = 3) -> list[RequestOutput]:
    """All at once, greedily; two log-probabilities a token."""
    params = SamplingParams(max_tokens=new, temperature=0, ignore_eos=True, logprobs=2)
    streams = [engine.stream(prompt, params) for prompt in prompts]
    return [stream.result(300) for stream in streams]


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [list(output.choices[0].token_ids) for output in outputs]


def bits(outputs: list[RequestOutput]) -> list[Any]:
    return [output.choices[0].logprobs for output in outputs]


def hits(outputs: list[RequestOutput]) -> list[int]:
    return [output.cache.cached_tokens for output in outputs]


def by_kernels(make_engine: Make, **settings: Any) -> Engine:
    engine = make_engine(attention="triton", **settings)
    assert engine.attention_name == "triton"
    return engine


@pytest.mark.parametrize(
    ("page", "kv"), [(1, "auto"), (16, "fp8"), slow(1, "fp8"), slow(16, "auto")]
)
def test_tokens_are_those_of_the_cpu(make_engine: Make, page: int, kv: str) -> None:
    lengths = [n for n in (page - 1, page, page + 1, 2 * page) if n] + [32 + page]
    prompts = [ids(n, seed) for seed, n in enumerate(lengths)]
    settings: dict[str, Any] = {"page_size": page, "kv_dtype": kv, "max_batch_tokens": CHUNK}
    expected = run(make_engine(**settings), prompts)
    engine = by_kernels(make_engine, **settings)
    cold = run(engine, prompts)
    assert tokens(cold) == tokens(expected)
    assert hits(cold) == hits(expected)
    warm = run(engine, prompts)
    assert tokens(warm) == tokens(expected)
    assert hits(warm) == [(n - 1) // page * page for n in lengths]
    assert sum(hits(warm)) > 0


@pytest.mark.parametrize("kv", [slow("auto"), "fp8"])
def test_a_shared_prefix_is_read_once(make_engine: Make, kv: str) -> None:
    shared = ids(272, 0)
    prompts = [shared + ids(n, n) for n in (3, 5, 9)]
    found = []
    flat: dict[str, Any] = {"attention": "triton", "cascade": False}
    for settings in ({}, *([] if kv == "fp8" else [flat]), {"attention": "triton"}):
        engine = make_engine(page_size=16, kv_dtype=kv, **settings)
        run(engine, [shared], 1)
        outputs = run(engine, prompts, 2)
        assert hits(outputs) == [272] * 3
        found.append(tokens(outputs))
        runner: Any = engine._core.runner
        wanted = bool(settings) and "cascade" not in settings
        assert (getattr(runner.attention, "cascades", 0) > 0) == wanted
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize(("page", "kv"), [(1, "auto"), (16, "fp8")])
def test_deterministic_is_the_same_to_the_bit(make_engine: Make, page: int, kv: str) -> None:
    engine = by_kernels(
        make_engine, page_size=page, kv_dtype=kv, deterministic=True, max_batch_tokens=CHUNK
    )
    assert engine.bit_exact
    prompt, other = ids(3 * 16 + 1, 1), ids(2, 2)
    [cold] = run(engine, [prompt])
    warm, _ = run(engine, [prompt, other])
    assert hits([cold, warm]) == [0, 48]
    assert bits([warm]) == bits([cold])
    engine.flush()
    alone, _ = run(engine, [prompt, prompt[:20] + other])
    assert hits([alone]) == [0]
    assert bits([alone]) == bits([cold])
