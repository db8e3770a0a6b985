"""Every rule has a page, complete, and a code and a name of its own."""

from __future__ import annotations

import re

import pytest

from agentkv.lint.rule import FAMILIES, Rule, Selection, all_rules, matching, rule_named

SECTIONS = ["What it catches", "Why it costs", "Bad", "Good", "When it is wrong"]
RULES = [r for r in all_rules() if not r.code.startswith("KV0")]

# Those that the catalogue's authors would have on by default, by what they are called there.
CERTAIN = [
    "timestamp-in-prefix",
    "random-id-in-prefix",
    "partial-variable-callable",
    "template-clock",
    "user-data-before-shared",
    "dynamic-before-static",
    "question-before-documents",
    "question-in-system",
    "context-before-instructions",
    "examples-after-dynamic",
    "placeholder-before-static-messages",
    "set-iteration",
    "tool-order-unstable",
    "history-front-truncation",
    "system-message-mutated",
    "chat-template-date",
    "token-boundary-merge",
    "breakpoint-after-dynamic",
    "breakpoint-missing",
    "breakpoint-limits",
    "lookback-exceeded",
    "cache-key-misuse",
]
BY_SIGNS = [
    "conditional-section-head",
    "unsorted-json",
    "retrieved-docs-order",
    "inline-fstring-prompt",
    "mid-prefix-trim",
    "duplicate-static-tail",
    "prompt-rebuilt-each-call",
    "unknown-before-static",
]
# The whole catalogue but what needs logs of several requests: ttl-gap and block-tail-waste.
OTHERS = [
    "date-in-prefix",
    "random-content-in-prefix",
    "counter-in-prefix",
    "host-state-in-prefix",
    "object-repr-in-prompt",
    "import-time-now",
    "clock-via-helper",
    "memory-in-system-prompt",
    "schema-text-after-dynamic",
    "tools-text-after-dynamic",
    "late-system-message",
    "unsorted-listing",
    "completion-order",
    "groupby-tie-order",
    "doc-rank-in-text",
    "fewshot-shuffle",
    "fewshot-selector-dynamic",
    "dynamic-tool-set",
    "dynamic-tool-schema",
    "tool-serialisation-drift",
    "response-format-varies",
    "params-in-prefix-change",
    "model-varies",
    "history-edited-in-place",
    "history-summarised-into-head",
    "fork-prefix-differs",
    "message-inserted-mid-history",
    "reasoning-stripped",
    "assistant-turn-reserialised",
    "chat-template-tail-dependent",
    "whitespace-drift",
    "unicode-drift",
    "locale-format-drift",
    "image-reencoded",
    "below-minimum",
    "padding-in-prefix",
    "fan-out-before-first-token",
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_page_is_complete(rule: type[Rule]) -> None:
    page = rule.page()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .+$", page, flags=re.MULTILINE)
    assert parts[0].strip().endswith(".") and "\n" not in parts[0].strip()
    for body in parts[1:]:
        assert len(body.strip()) > 30
    for title in ("Bad", "Good"):
        body = page.split(f"## {title}\n")[1].split("\n## ")[0]
        assert re.fullmatch(r"```\w+\n.+\n```", body.strip(), re.DOTALL), title


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_code_and_name(rule: type[Rule]) -> None:
    assert re.fullmatch(r"KV[1-7]\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", rule.name)
    assert rule.family() in FAMILIES.values()
    assert rule_named(rule.code) is rule_named(rule.name) is rule


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_one_file_a_rule(rule: type[Rule]) -> None:
    assert rule.__module__ == f"agentkv.lint.rules.{rule.name.replace('-', '_')}"


def test_codes_and_names_are_unique() -> None:
    assert len({r.code for r in RULES}) == len({r.name for r in RULES}) == len(RULES)


def test_the_catalogue_is_covered() -> None:
    names = {r.name for r in RULES}
    assert set(CERTAIN) | set(BY_SIGNS) | set(OTHERS) <= names
    certainty = {r.name: r.certainty for r in RULES}
    assert all(certainty[n] == "default" for n in CERTAIN)
    assert all(certainty[n] == "heuristic" for n in BY_SIGNS)


def test_selection_by_code_prefix_and_name() -> None:
    chosen = Selection(select=("KV7", "timestamp-in-prefix"), ignore=("KV706",)).rules()
    codes = [r.code for r in chosen]
    assert codes[0] == "KV101" and "KV707" in codes and "KV706" not in codes
    with pytest.raises(ValueError, match="KV999"):
        matching("KV999")
