"""Severity comes from cost: tokens behind the slot, how often it changes, what the target reuses."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.lint.context import Traffic
from agentkv.lint.finding import Finding


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, [f.code for f in found]
    return found[0]


@pytest.mark.parametrize(
    ("tokens", "severity"),
    [(40, None), (63, None), (64, "warning"), (400, "error"), (4000, "error")],
)
def test_a_clock_costs_what_stands_behind_it(build: Any, tokens: int, severity: str | None) -> None:
    found = build.find(build.document(build.hole("now", "call", "clock"), build.rules(tokens)))
    assert [f.severity for f in found] == ([] if severity is None else [severity])
    assert [f.tokens_lost for f in found] == ([] if severity is None else [tokens])


@pytest.mark.parametrize(
    ("level", "share"), [("tenant", 0.3), ("user", 0.6), ("session", 0.7), ("turn", 0.85)]
)
def test_the_share_is_the_levels(build: Any, level: str, share: float) -> None:
    one = only(build.find(build.document(build.hole("plan", level), build.rules(1000))))
    assert one.share == share
    assert one.tokens_lost == round(1000 * share)
    assert f"about {share * 100:.0f} % of calls compute them again" in one.message
    assert "1,000 static tokens" in one.message


def test_traffic_is_stated_and_can_be_changed(build: Any) -> None:
    document = build.document(build.hole("user_name"), build.rules(1000))
    one_user = Traffic(changes={**Traffic().changes, "user": 0.01})
    assert only(build.find(document)).severity == "warning"
    few = only(build.find(document, traffic=one_user))
    assert (few.severity, few.tokens_lost) == ("info", 10)


def test_min_tokens_is_respected(build: Any) -> None:
    document = build.document(build.hole("topic"), build.rules(100))
    assert build.codes(document, min_tokens=100) == ["KV201"]
    assert build.codes(document, min_tokens=101) == []


def test_a_prompt_below_the_targets_minimum_is_not_cached_at_all(build: Any) -> None:
    document = build.document(build.hole("now", "call", "clock"), build.rules(500))
    assert build.codes(document, target="vllm") == ["KV101"]
    assert build.codes(document, target="openai") == []
    long = build.document(build.hole("now", "call", "clock"), build.rules(1100))
    assert build.codes(long, target="openai") == ["KV101"]


def test_the_minimum_is_the_models(build: Any) -> None:
    def document(model: str) -> Any:
        b = build
        template = b.template(b.hole("now", "call", "clock"), b.rules(1500))
        return b.document(b.request(template, model=model, api="unknown"))

    assert build.codes(document("claude-sonnet-4-5"), target="anthropic") == ["KV101"]
    assert build.codes(document("claude-haiku-4-5"), target="anthropic") == []


def test_the_conversation_is_lost_by_what_changes_within_it(build: Any) -> None:
    b = build
    clock = only(
        b.find(
            b.document(b.part("system", b.rules(99), b.hole("now", "call", "clock")), b.history())
        )
    )
    assert (clock.static_behind, clock.tokens_lost) == (0, Traffic().history_tokens)
    assert b.find(b.document(b.part("system", b.rules(99), b.hole("user_name")), b.history())) == []


def test_what_a_name_suggests_is_never_an_error(build: Any) -> None:
    document = build.document(build.hole("context"), build.rules(5000))
    assert only(build.find(document)).severity == "warning"
    known = build.document(build.hole("context", "turn", "context"), build.rules(5000))
    assert only(build.find(known)).severity == "error"


def test_configuration_overrules_every_guess(build: Any) -> None:
    b = build
    document = b.document(b.hole("user_name"), b.rules(500))
    assert b.codes(document) == ["KV202"]
    assert b.codes(document, stability={"user_name": "deploy"}) == []
    clock = b.document(b.hole("now", "call", "clock"), b.rules(500))
    assert b.codes(clock, stability={"now": "deploy"}) == []
    brand = b.document(b.hole("brand"), b.rules(500))
    assert b.codes(brand) == ["KV215"]
    assert b.codes(brand, stability={"brand": "tenant"}) == ["KV202"]
    assert b.codes(brand, stability={"brand": "build"}) == []


def test_unknown_is_a_question_at_info(build: Any) -> None:
    one = only(build.find(build.document(build.hole("preface"), build.rules(900))))
    assert (one.code, one.severity) == ("KV215", "info")
    assert "unknown stability" in one.message and 'preface = "deploy"' in one.message


def test_rules_that_judge_by_signs_stay_at_info(build: Any) -> None:
    b = build
    cases = [
        b.document(b.hole("beta", "unknown", "conditional"), b.rules(5000)),
        b.document(b.hole("settings", "unknown", "unsorted_json"), b.rules(5000)),
        b.document(b.request(history=(b.op("mid_trim", in_loop=True),))),
        b.document(b.request(history=(b.op("rebuilt_each_call", in_loop=True),))),
    ]
    assert [only(b.find(c)).severity for c in cases] == ["info"] * 4


def test_an_estimate_says_so(build: Any) -> None:
    context = build.context()
    document = build.document(build.hole("topic"), build.rules(100))
    exact = only(build.find(document, context)).message
    from dataclasses import replace

    rough = only(build.find(document, replace(context, exact=False))).message
    assert "precedes 100 static" in exact and "precedes about 100 static" in rough


def test_bars_show_the_layout_before_and_after(build: Any) -> None:
    b = build
    one = only(
        b.find(
            b.document(
                b.part("system", b.hole("user_name", example="Ada Lovelace"), b.rules(300)),
                b.part("user", b.hole("question")),
            )
        )
    )
    assert one.before is not None and one.after is not None
    assert one.before.runs == (("user", 2), ("build", 300), ("turn", 30))
    assert [level for level, _ in one.after.runs] == ["build", "user", "turn"]
    assert sum(n for _, n in one.before.runs) == sum(n for _, n in one.after.runs)
