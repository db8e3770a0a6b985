"""Trimming: the start holds, then jumps; nothing is cut out of the middle or from a pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from agentkv.langchain import ChatAgentKV
from agentkv.langchain.agents import trim_in_jumps
from agentkv.langchain.handler import CacheReportHandler, cache_report

if TYPE_CHECKING:
    from agentkv.engine import Engine


def history(turns: int) -> list[AnyMessage]:
    out: list[AnyMessage] = [SystemMessage("rules")]
    for i in range(turns):
        out += [HumanMessage(f"q{i}"), AIMessage(f"a{i}")]
    return out


def test_the_start_moves_rarely() -> None:
    """B077: a window of the last N moves at every turn; this holds for most - least messages."""
    starts = []
    for turns in range(1, 60):
        given = history(turns)
        kept = trim_in_jumps(given, most=20, least=8)
        assert kept[0] is given[0]
        assert kept[1:] == given[len(given) - len(kept) + 1 :]
        assert isinstance(kept[1], HumanMessage)
        assert len(kept) - 1 <= 20
        if turns > 10:
            assert len(kept) - 1 >= 8
        starts.append(kept[1].text)
    assert len(set(starts)) == 10, "59 calls, 10 starts"


@pytest.mark.parametrize("start_on_user", [False, True])
def test_pairs_stay_whole(start_on_user: bool) -> None:
    call = AIMessage("", tool_calls=[{"name": "x", "args": {}, "id": "1"}])
    result = ToolMessage("r", tool_call_id="1")
    talk: list[AnyMessage] = [HumanMessage("q0")]
    starts = set()
    for i in range(1, 40):
        talk += [call, result, result]
        if i % 6 == 0:
            talk += [AIMessage("done"), HumanMessage(f"q{i}")]
        kept = trim_in_jumps(talk, most=20, least=8, start_on_user=start_on_user)
        assert kept == talk[len(talk) - len(kept) :]
        assert not isinstance(kept[0], ToolMessage)
        assert len(kept) <= 22
        starts.add(len(talk) - len(kept))
    assert len(starts) < 14
    on_user = [start for start in starts if talk[start].type == "human"]
    assert len(on_user) > (len(starts) // 2 if start_on_user else 0)


def test_limits() -> None:
    given = history(3)
    assert trim_in_jumps(given, most=6) == given
    for least, most in ((0, 5), (5, 5), (9, 5)):
        with pytest.raises(ValueError, match="least"):
            trim_in_jumps(given, most=most, least=least)


def test_a_sliding_start_is_found_and_a_jumping_one_reuses(shared: Engine) -> None:
    """B077, on the engine: each call of a sliding window loses its history, and says so."""
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=2, layout="off")

    def play(cut: Callable[[list[Any]], list[Any]], session: str) -> CacheReportHandler:
        shared.flush()
        talk: list[AnyMessage] = []
        with cache_report() as r:
            for i in range(24):
                talk.append(HumanMessage(f"question {i} about the order"))
                talk.append(llm.invoke([SystemMessage("Be kind."), *cut(talk)], session=session))
        return r

    sliding = play(lambda talk: talk[-7:], "sliding")
    jumping = play(lambda talk: trim_in_jumps(talk, most=23, least=3), "jumping")
    reasons = [row.report.reason for row in sliding.misses() if row.report]
    assert len(reasons) >= 19
    assert reasons.count("history_truncated") >= len(reasons) - 2
    assert sliding.hit_rate < 0.35
    assert jumping.hit_rate > 0.8
