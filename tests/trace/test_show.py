"""One session, call by call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from agentkv.trace.analyse import analyse
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.call import Call, Usage
from agentkv.trace.render import Renderer
from agentkv.trace.show import NoSuchSession, Session, show
from tests.trace.build import call, chat

RULES = "Answer in one sentence. Name the ship. Never guess a date or a price. " * 6


def two_sessions() -> list[Call]:
    """`good` only grows; `bad` has a clock in front of its rules."""
    good = [replace(c, session="good") for c in chat(5, system=RULES)]
    bad = [
        replace(
            call(("user", f"Where is ship {n}?"), system=f"Now: 10:{n:02}:{n * 7 % 60:02}.\n{RULES}",
                 number=10 + n),
            session="bad", usage=Usage(prompt=200, cached=n * 10),
        )
        for n in range(5)
    ]  # fmt: skip
    return [c for pair in zip(good, bad, strict=True) for c in pair]


def shown(calls: list[Call], name: str | None = None) -> Session:
    return show(lambda: calls, Renderer(), session=name)


def test_the_session_that_lost_most_is_shown_unless_one_is_named() -> None:
    calls = two_sessions()
    found = shown(calls)
    assert (found.session, found.named, found.sessions) == ("bad", True, 2)
    assert [s.request for s in found.steps] == [1, 3, 5, 7, 9]
    assert [o.session for o in found.others] == ["good"]
    good = shown(calls, "good")
    assert [s.reason for s in good.steps] == ["first_call", *["appended"] * 4]
    assert good.lost == 0
    with pytest.raises(NoSuchSession, match="there are: good, bad"):
        shown(calls, "other")
    with pytest.raises(NoSuchSession, match="no calls"):
        shown([])


def test_what_each_call_lost_is_named_and_sums_to_the_report() -> None:
    calls = two_sessions()
    found = shown(calls)
    assert found.steps[0].lost == 0 or found.steps[0].compared_with is not None
    for step in found.steps[1:]:
        assert [(c.rule, c.segment) for c in step.changes] == [("KV101", "messages[0]")]
        assert step.changes[0].tokens_lost == step.lost > 80
        assert step.compared_with is not None
    report = analyse(lambda: calls, renderer=Renderer(), fixed=False)
    both = found.lost + shown(calls, "good").lost
    assert both == pytest.approx(sum(c.tokens_lost for c in report.causes), abs=len(calls))


def test_segments_and_tokens_agree() -> None:
    found = shown(two_sessions(), "good")
    for step in found.steps:
        assert sum(s.tokens for s in step.segments) == step.prompt_tokens
        assert sum(s.cached for s in step.segments) == step.cached
        assert all(0 <= s.cached <= s.tokens for s in step.segments)
    assert found.cached == sum(s.cached for s in found.steps)
    assert json.loads(json.dumps(found.to_dict()))["hit_rate"] == found.cached / found.prompt_tokens


def test_what_a_provider_said_stands_beside_and_a_failed_call_has_nothing() -> None:
    calls = two_sessions()
    calls[5] = replace(calls[5], error="overloaded")
    steps = shown(calls, "bad").steps
    assert [s.measured for s in steps] == [0, 10, 20, 30, 40]
    assert (steps[2].error, steps[2].prompt_tokens, steps[2].cached) == ("overloaded", 0, 0)
    assert shown(calls, "good").steps[0].measured is None


def test_what_other_sessions_left_in_the_cache_counts() -> None:
    first = replace(call(("user", "one"), system=RULES), session="a")
    second = replace(call(("user", "two"), system=RULES), session="b")
    assert shown([first, second], "b").steps[0].cached > 50


def test_a_small_cache_evicts() -> None:
    calls = two_sessions()
    size = 150
    small: Callable[[], object] = lambda: cache_model("agentkv", size=size)  # noqa: E731
    found = show(lambda: calls, Renderer(), small, session="good")  # type: ignore[arg-type]
    assert found.cached < shown(calls, "good").cached
    assert sum(s.evicted for s in found.steps) > 0
    assert "150" in found.cache


def test_sessions_that_no_log_names_are_found() -> None:
    calls = [replace(c, session=None) for c in two_sessions()]
    found = shown(calls, "#1")
    assert (found.session, found.named) == ("#1", False)
    assert [s.reason for s in found.steps] == ["first_call", *["appended"] * 4]
    assert found.steps[-1].said.startswith("a: what is the draught of ship number 4")
