"""Clearing old tool results: what was cleared stays cleared, and the prefix breaks rarely."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from agentkv.langchain.agents import ClearToolUsesSticky


def history(results: int, *, ids: bool = True) -> list[AnyMessage]:
    out: list[AnyMessage] = [HumanMessage("go", id="h")]
    for i in range(results):
        out.append(
            AIMessage(
                "", tool_calls=[{"name": "look", "args": {"n": i}, "id": f"c{i}"}], id=f"a{i}"
            )
        )
        out.append(
            ToolMessage(
                f"result {i} " + "x" * 200, tool_call_id=f"c{i}", id=f"t{i}" if ids else None
            )
        )
    return out


def sent(edit: Any, results: int, **how: Any) -> list[str]:
    """What the middleware would send: it edits a fresh copy of the whole history each time."""
    messages = copy.deepcopy(history(results, **how))
    edit.apply(messages, count_tokens=count_tokens_approximately)
    return [m.text or str(m.tool_calls) if isinstance(m, AIMessage) else m.text for m in messages]


def breaks(edit: Any, upto: int = 24, **how: Any) -> int:
    """How many calls do not start with what the call before had."""
    before: list[str] = []
    found = 0
    for n in range(1, upto):
        now = sent(edit, n, **how)
        found += now[: len(before)] != before
        before = now
    return found


@pytest.mark.parametrize("ids", [True, False])
def test_the_prefix_breaks_once_a_batch(ids: bool) -> None:
    """B077: a window that slides breaks the prefix in each call."""
    sliding = breaks(ClearToolUsesEdit(trigger=300, keep=3))
    assert sliding >= 17
    sticky = ClearToolUsesSticky(trigger=300, keep=3, batch=8, clear_at_least=10**6)
    assert breaks(sticky, ids=ids) == 2


def test_what_is_sent_keeps_the_last_ones_and_every_message() -> None:
    edit = ClearToolUsesSticky(trigger=300, keep=3, batch=4, clear_at_least=10**6)
    for n in range(1, 24):
        now = sent(edit, n)
        assert len(now) == 1 + 2 * n
        kept = [text for text in now if text.startswith("result")]
        whole = sent(ClearToolUsesEdit(trigger=10**9), n)
        assert now[-2 * min(n, 3) :] == whole[-2 * min(n, 3) :]
        assert min(n, 3) <= len(kept) < 3 + 4 + 3
    assert sent(edit, 23).count("[cleared]") == 20


def test_below_the_trigger_nothing_is_cleared_and_what_was_stays() -> None:
    edit = ClearToolUsesSticky(trigger=10**6, keep=1, batch=1)
    assert "[cleared]" not in sent(edit, 20)
    edit.trigger = 300
    assert sent(edit, 20).count("[cleared]") == 19
    edit.trigger = 10**6
    assert sent(edit, 21).count("[cleared]") == 19, "also when the prompt is short again"
    shorter = history(20)[21:]  # the older half was summarised away
    edit.apply(shorter, count_tokens=count_tokens_approximately)
    assert [m.text == "[cleared]" for m in shorter if isinstance(m, ToolMessage)] == [True] * 9 + [
        False
    ]


def test_a_few_large_results_are_worth_it_too() -> None:
    edit = ClearToolUsesSticky(trigger=300, keep=1, batch=100, clear_at_least=200)
    assert "[cleared]" not in sent(edit, 3)
    assert sent(edit, 6).count("[cleared]") == 5
    with pytest.raises(ValueError, match="batch"):
        ClearToolUsesSticky(batch=0)


def test_excluded_tools_and_inputs() -> None:
    edit = ClearToolUsesSticky(trigger=1, keep=0, batch=1, exclude_tools=("look",))
    assert "[cleared]" not in sent(edit, 4)
    edit = ClearToolUsesSticky(trigger=1, keep=1, batch=1, clear_tool_inputs=True)
    messages = history(3)
    edit.apply(messages, count_tokens=count_tokens_approximately)
    args = [m.tool_calls[0]["args"] for m in messages if isinstance(m, AIMessage)]
    assert args == [{}, {}, {"n": 2}]
    again = history(3)
    edit.apply(again, count_tokens=count_tokens_approximately)
    assert [m.model_dump() for m in again] == [m.model_dump() for m in messages]
