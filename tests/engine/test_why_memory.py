"""What the explainer remembers is bounded in ids, not only in prompts."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from agentkv.engine import why
from agentkv.engine.types import IntArray, RenderedPrompt
from agentkv.engine.why import Explainer, Record, Whereabouts

NS = (("salt", None),)


def ids(count: int, start: int = 0) -> IntArray:
    return np.arange(start, start + count, dtype=np.int32)


def admit(explainer: Explainer, prompt: IntArray, session: str | None) -> Record:
    _, record = explainer.explain(
        RenderedPrompt(token_ids=prompt),
        namespace=NS,
        session=session,
        matched=0,
        known=0,
        page_size=1,
    )
    return record


def held(explainer: Explainer) -> int:
    records = [*explainer._recent, *(r for rs in explainer._sessions.values() for r in rs)]
    return sum(len(r.full) for r in records)


@pytest.mark.parametrize("named", [True, False])
def test_long_prompts_push_out_old_ones(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "TOKENS", 10_000)
    explainer = Explainer(whereabouts=Whereabouts())
    for n in range(200):
        record = admit(explainer, ids(1000, n), f"s{n % 50}" if named else None)
        explainer.finished(record, ids(1100, n), 1100)
        assert explainer.tokens == held(explainer) <= 10_000
    assert explainer.tokens > 8_000
    explainer.forget()
    assert explainer.tokens == held(explainer) == 0


def test_the_last_call_is_remembered_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "TOKENS", 1000)
    explainer = Explainer(whereabouts=Whereabouts())
    for n in range(3):
        record = admit(explainer, ids(5000, n), f"s{n}")
        explainer.finished(record, ids(5100, n), 5100)
    assert list(explainer._sessions) == [(NS, "s2")]
    assert explainer.tokens == 5100


def test_a_call_that_ends_when_it_is_forgotten_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(why, "TOKENS", 3000)
    explainer = Explainer(whereabouts=Whereabouts())
    old = admit(explainer, ids(2000), "old")
    admit(explainer, ids(2000, 9), "new")
    explainer.finished(old, ids(2500), 2500)
    assert explainer.tokens == held(explainer) == 2000
    for n in range(20):
        explainer.finished(admit(explainer, ids(100, n), "many"), ids(150, n), 150)
    assert explainer.tokens == held(explainer) == 2000 + why.PER_SESSION * 150


def test_memory_is_flat() -> None:
    """Sessions of 400,000 tokens: prompt and output are one array, and the total ends."""
    explainer = Explainer(whereabouts=Whereabouts())

    def calls(first: int, count: int) -> int:
        for n in range(first, first + count):
            record = admit(explainer, ids(400_000, n), f"s{n}")
            explainer.finished(record, ids(400_200, n), 400_200)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        calls(0, 20)
        full = calls(20, 40)
        assert 4 * why.TOKENS * 0.9 < full < 4 * why.TOKENS * 1.05
        assert calls(60, 60) < full * 1.02
    finally:
        tracemalloc.stop()
