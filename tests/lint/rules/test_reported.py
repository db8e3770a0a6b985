"""Bugs that users of other tools reported (B058 to B067), at the level of rules."""

from __future__ import annotations

from typing import Any

import pytest


def test_b058_ordinary_words_and_code_names_are_no_findings(build: Any) -> None:
    words = (
        "Set status to in_progress or done. Use DebugModal and getAuthToken(uuid). See main.py:42, "
        "version 2.14.3, price 19.99 EUR, at 09:30 on Monday, datetime.now() is not allowed."
    )
    b = build
    assert (
        b.codes(
            b.document(b.part("system", words, b.rules(300)), b.part("user", b.hole("question")))
        )
        == []
    )


@pytest.mark.parametrize(
    "text",
    [
        "Use {{!date}} for the date.",
        "{% raw %}{{ now() }}{% endraw %}",
        '{"date": "2026-11-30", "id": "{uuid}"}',
        r"A date looks like \d{4}-\d\d-\d\d.",
        "```python\nprint(datetime.now())\n```",
    ],
)
def test_b059_documented_template_syntax_is_text(build: Any, text: str) -> None:
    assert build.codes(build.document(build.part("system", text, build.rules(300)))) == []


class TestB061:
    """Severity by granularity, and lower at the end of the prompt."""

    def severity(self, b: Any, hole: Any, *, end: bool) -> str | None:
        rules = b.rules(600)
        pieces = (rules, hole) if end else (hole, rules)
        found = b.find(b.document(b.template(b.part("system", *pieces), followed=True)))
        return found[0].severity if found else None

    def test_seconds(self, build: Any) -> None:
        clock = build.hole("time.time()", "call", "clock")
        assert self.severity(build, clock, end=False) == "error"
        assert self.severity(build, clock, end=True) == "warning"

    def test_hours(self, build: Any) -> None:
        for hour in (
            build.hole("now", "call", "clock", "hour"),
            build.hole("now", "call", "clock", why="datetime.now(), hours only"),
        ):
            assert self.severity(build, hour, end=False) == "warning"
            assert self.severity(build, hour, end=True) == "info"

    def test_days(self, build: Any) -> None:
        day = build.hole("date.today()", "call", "date")
        assert self.severity(build, day, end=False) == "info"
        assert self.severity(build, day, end=True) == "info"

    def test_a_date_of_unknown_precision(self, build: Any) -> None:
        named = build.hole("date")
        assert self.severity(build, named, end=False) == "warning"
        assert self.severity(build, named, end=True) == "info"

    def test_nothing_behind_it(self, build: Any) -> None:
        b = build
        for hole in (b.hole("now", "call", "clock"), b.hole("today", "call", "date")):
            assert (
                b.codes(
                    b.document(
                        b.part("system", b.rules(600)), b.part("user", b.hole("question"), hole)
                    )
                )
                == []
            )


class TestB062:
    def test_a_clock_that_never_reaches_the_prompt(self, build: Any) -> None:
        # The argument is used for a log line only, so no template has a hole for it.
        b = build
        assert b.codes(b.document(b.request(b.template(b.part("system", b.rules(300)))))) == []

    def test_a_clock_in_a_tool_result(self, build: Any) -> None:
        b = build
        found = b.find(
            b.document(
                b.part("system", b.rules(300)),
                b.part("tool", "It is ", b.hole("now", "call", "clock")),
            )
        )
        assert [(f.code, f.severity) for f in found] == [("KV101", "info")]
        assert "appended" in found[0].message


def test_b064_one_prefix_a_role_is_fine_and_an_id_in_one_of_them_is_named(build: Any) -> None:
    b = build

    def role(name: str, *head: Any) -> Any:
        system = b.part("system", *head, b.rules(300, name))
        return b.request(b.template(system, b.history(), name=f"{name.upper()}_PROMPT"))

    clean = b.document(role("planner"), role("worker"), role("judge"))
    assert b.codes(clean) == []
    run = b.hole("run_id", "call", "random_id")
    found = b.find(b.document(role("planner"), role("worker", "Run ", run, "\n"), role("judge")))
    assert [f.code for f in found] == ["KV103"]
    assert found[0].slot.startswith("WORKER_PROMPT/") and found[0].slice == run.slice


@pytest.mark.parametrize(("tokens", "found"), [(40, []), (400, ["KV102"]), (4000, ["KV102"])])
def test_b065_short_prompts_are_left_alone(build: Any, tokens: int, found: list[str]) -> None:
    b = build
    document = b.document(
        b.part("system", "Today is ", b.hole("date"), b.rules(tokens)),
        b.part("user", b.hole("question")),
    )
    assert b.codes(document) == found
    assert b.codes(document, min_tokens=8000) == []


def test_b065_a_block_is_the_least(build: Any) -> None:
    # 20 tokens behind it, blocks of 16: worth it only when --min-tokens says so, and not below a block.
    b = build
    document = b.document(b.hole("now", "call", "clock"), b.rules(20))
    assert b.codes(document, target="vllm", min_tokens=0) == ["KV101"]
    less = b.document(b.hole("now", "call", "clock"), b.rules(12))
    assert b.codes(less, target="vllm", min_tokens=0) == []


def test_b067_a_request_without_evidence_is_not_called_clean(build: Any) -> None:
    """Switching the cache off by its own key is an error, whatever the rest of the request is like."""
    b = build
    found = b.find(b.document(b.request(settings=(b.setting("cache_salt", "call", "random_id"),))))
    assert [(f.code, f.severity) for f in found] == [("KV707", "error")]
