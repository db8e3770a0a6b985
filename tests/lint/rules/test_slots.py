"""One finding a slot, the most specific one, always the same."""

from __future__ import annotations

import random
from typing import Any

from agentkv.lint.rule import Selection, all_rules, find
from agentkv.lint.rules._resolve import resolve


def test_a_clock_is_volatile_content_and_not_also_an_order_problem(build: Any) -> None:
    b = build
    assert b.codes(b.document(b.hole("now", "call", "clock"), b.rules(300))) == ["KV101"]
    assert b.codes(
        b.document(b.part("system", b.hole("now", "call", "clock"), b.rules(300)), b.history())
    ) == ["KV101"]


def test_the_more_specific_rule_wins(build: Any) -> None:
    b = build
    rules = b.rules(300)
    cases = {
        "KV109": b.hole("a", "call", "clock", "callable_partial", "via_helper"),
        "KV111": b.hole("b", "call", "clock", "via_helper"),
        "KV108": b.hole("c", "deploy", "clock", "import_time", "via_helper"),
        "KV301": b.hole("d", "user", "set_order", "user_data"),
        "KV308": b.hole("e", "call", "shuffled", "random_content", "examples"),
        "KV202": b.hole("f", "user", "user_data", "unsorted_json"),
    }
    for code, hole in cases.items():
        assert b.codes(b.document(hole, rules)) == [code]


def test_a_repeated_name_is_one_finding(build: Any) -> None:
    b = build
    found = b.find(
        b.document(b.hole("user_name"), b.rules(200), b.hole("user_name"), b.rules(200, "more"))
    )
    assert [f.code for f in found] == ["KV202"]
    assert found[0].static_behind == 400
    assert [word for _, word in found[0].also] == ["and here"]


def test_neighbours_are_one_finding(build: Any) -> None:
    b = build
    near = b.find(
        b.document("You help ", b.hole("user_name"), " (", b.hole("user_id"), ").", b.rules(200))
    )
    assert len(near) == 1 and len(near[0].also) == 1
    apart = b.find(
        b.document(b.hole("user_name"), b.rules(100), b.hole("user_id"), b.rules(100, "more"))
    )
    assert len(apart) == 2


def test_different_things_side_by_side_are_two_findings(build: Any) -> None:
    b = build
    found = b.codes(
        b.document(b.hole("user_name"), " ", b.hole("now", "call", "clock"), b.rules(200))
    )
    assert found == ["KV202", "KV101"]


def test_ignoring_the_specific_rule_does_not_name_the_slot_otherwise(build: Any) -> None:
    b = build
    document = b.document(b.hole("now", "call", "clock"), b.rules(300))
    assert find(document, b.context(), Selection(ignore=("KV101",)).rules()) == []
    assert find(document, b.context(), Selection(select=("KV2",)).rules()) == []


def test_order_of_the_rules_does_not_matter(build: Any) -> None:
    b = build
    document = b.document(
        b.part(
            "system",
            b.hole("user_name"),
            b.rules(99),
            b.hole("now", "call", "clock", "via_helper"),
            b.rules(99, "m"),
        ),
        b.part(
            "user",
            b.hole("question"),
            b.hole("docs", "turn", "context", "score_order", "score_text"),
            b.rules(70, "z"),
        ),
    )
    context = b.context()
    found = [f for rule in all_rules() for f in rule().check(document, context)]
    expected = resolve(list(found), context)
    for seed in range(20):
        random.Random(seed).shuffle(found)
        assert resolve(list(found), context) == expected
    assert len({f.slot for f in expected}) == len(expected)


def test_slots_are_stable_over_edits_elsewhere(build: Any) -> None:
    b = build
    before = b.find(b.document(b.hole("user_name"), b.rules(200)))
    after = b.find(b.document("A new first line.\n", b.hole("user_name"), b.rules(250)))
    assert before[0].slot == after[0].slot
    assert before[0].slice != after[0].slice


def test_a_finding_points_at_the_hole(build: Any) -> None:
    b = build
    hole = b.hole("user_name", defined_at=b.slice(5))
    one = b.find(b.document("Hello ", hole, b.rules(200)))[0]
    assert one.slice == hole.slice
    assert one.at == (0, 1)
    assert one.also == ((hole.defined_at, "made here"),)


def test_holes_without_a_place_in_the_file_keep_apart(build: Any) -> None:
    from dataclasses import replace

    b = build
    one, two = (replace(b.hole(n), slice=None) for n in ("user_name", "topic"))
    assert sorted(b.codes(b.document(one, b.rules(99), two, b.rules(99, "m")))) == [
        "KV201",
        "KV202",
    ]


def test_a_rule_that_raises_is_told_and_the_others_go_on(build: Any, monkeypatch: Any) -> None:
    from agentkv.lint.rule import rule_named

    def broken(self: Any, document: Any, context: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setattr(rule_named("KV205"), "check", broken)
    told: list[str] = []
    b = build
    document = b.document(b.hole("now", "call", "clock"), b.rules(300))
    found = find(document, b.context(), failed=lambda rule, error: told.append(rule.code))
    assert [f.code for f in found] == ["KV101"] and told == ["KV205"]
