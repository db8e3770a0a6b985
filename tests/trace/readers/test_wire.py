"""Every recorded exchange of eight providers is read, with the tokens that the provider reported."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentkv.trace.call import Call
from agentkv.trace.readers import Problems, read

# (prompt, cached, written) by line, read off the recording by hand where the provider said anything.
REPORTED = {
    1: (4020, 0, 4012),
    2: (4020, 4012, 0),
    3: (4020, 0, 4012),
    4: (4020, 4012, 0),
    5: (3214, 0, 3211),
    6: (3329, 3211, 115),
    7: (2572, 0, 2569),
    8: (2649, 2569, 79),
    9: (2572, 2240, 329),
    10: (2168, 2161, 2161),
    11: (2167, 2161, 0),
    12: (3 + 0 + 1111, 1111, 0),
    13: (3 + 418 + 1111, 1111, 418),
    14: (253, 0, None),
    15: (268, 224, None),
    16: (2935, 2928, None),
    17: (6, 0, None),
    18: (563, 512, None),
    19: (875, 0, None),
    20: (976, 896, None),
    22: (343, None, None),
    24: (304, None, None),
    25: (339, None, None),
    26: (17, 0, None),
    27: (35, 0, None),
    28: (13, 0, None),
    29: (134, None, None),
    30: (206, None, None),
    31: (10, None, None),
    32: (9, 0, None),
    33: (88, 0, 0),
    34: (115, 0, 0),
    35: (158, 0, 43),
    36: (1149, 0, None),
    37: (1149, 1024, None),
    38: (1149, 0, None),
    39: (1149, 0, None),
    40: (4 + 1165, 0, 1165),
    41: (4 + 1165, 1165, 0),
}


@pytest.fixture(scope="module")
def lines(traces: Path) -> list[dict[str, Any]]:
    with gzip.open(traces / "wire" / "recorded_llm_http.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def account() -> Problems:
    return Problems()


@pytest.fixture(scope="module")
def calls(traces: Path, account: Problems) -> list[Call]:
    return list(read([traces / "wire" / "recorded_llm_http.jsonl.gz"], problems=account))


def test_all_seventy_are_read_in_order(calls: list[Call], account: Problems) -> None:
    assert [c.where.line for c in calls] == list(range(1, 71))
    assert account.bad == 0
    assert not account.skipped
    assert account.lines == account.calls == 70


def test_tokens_are_what_the_provider_reported(calls: list[Call]) -> None:
    found = {c.where.line: (c.usage.prompt, c.usage.cached, c.usage.written) for c in calls}
    assert {n: found[n] for n in REPORTED} == REPORTED
    # OpenAI's older streams end without a usage; a first Anthropic cassette names no cached tokens.
    for line in range(42, 53):
        assert found[line] == (None, None, None)
    for line in range(53, 71):
        assert found[line][0] is not None
        assert found[line][1:] == (None, None)


def test_a_count_that_is_in_no_reply_is_never_made_up(
    calls: list[Call], lines: list[dict[str, Any]]
) -> None:
    """An independent look: the raw reply names the cached tokens, or the call does not."""
    naming = re.compile(r'"(?:cached_tokens|cache_read_input_tokens|prompt_cache_hit_tokens)"\s*:')
    for call, line in zip(calls, lines, strict=True):
        raw = line["response"]
        raw = raw if isinstance(raw, str) else json.dumps(raw)
        assert (call.usage.cached is not None) == bool(naming.search(raw)), call.where


def test_the_providers_are_told_by_their_hosts(calls: list[Call]) -> None:
    assert {c.provider for c in calls} == {
        "openai",
        "openrouter",
        "anthropic",
        "mistral",
        "cohere",
        "deepseek",
        "groq",
        "cerebras",
        "zai",
        "ollama",
        "bedrock",
    }


def test_every_text_that_was_sent_is_in_the_parts(
    calls: list[Call], lines: list[dict[str, Any]]
) -> None:
    """Nothing of a prompt is lost, and its order is the provider's."""
    for call, line in zip(calls, lines, strict=True):
        sent = [
            text
            for text in _texts(line["request"].get("messages") or line["request"]["input"])
            if text
        ]
        have = [p.text for part in call.parts for p in part.pieces]
        position = 0
        for text in sent:
            assert text in have[position:], (call.where, text[:60])
            position += have[position:].index(text)


def _texts(messages: list[Any]) -> list[str]:
    found = []
    for message in messages:
        content = message.get("content", message.get("output"))
        if isinstance(content, str):
            found.append(content)
        for block in content if isinstance(content, list) else []:
            inner = block.get("content", block.get("text"))
            if isinstance(inner, str):
                found.append(inner)
    return found


def test_streams_are_folded_into_one_answer(calls: list[Call]) -> None:
    by_line = {c.where.line: c for c in calls}
    deepseek = by_line[17].answer
    assert [p.kind for p in deepseek] == ["reasoning", "text"]
    assert deepseek[1].text.startswith("Hello there!")
    magistral = by_line[31].answer
    assert [p.kind for p in magistral] == ["reasoning", "text"]
    assert magistral[1].text.endswith("safe crossing.")
    groq = by_line[22].answer
    assert [(p.kind, p.name, p.text) for p in groq if p.kind == "tool_call"] == [
        ("tool_call", "final_result", '{"response":"no"}')
    ]
    mantle = by_line[34].answer
    assert [p.kind for p in mantle] == ["reasoning", "tool_call"]
    anthropic = by_line[40].answer
    assert len(anthropic) == 1
    assert anthropic[0].text.endswith("long-term payoffs.")


def test_an_error_in_a_stream_is_an_error_of_the_call(calls: list[Call]) -> None:
    failed = {c.where.line: c.error for c in calls if c.error is not None}
    assert set(failed) == {21, 23}
    assert failed[21] == "Tool choice is required, but model did not call a tool"


def test_breakpoints_are_where_they_were_set(calls: list[Call]) -> None:
    def markers(line: int) -> list[tuple[str, int, int]]:
        return [
            (part.name, at, piece.marker)
            for part in calls[line - 1].parts
            for at, piece in enumerate(part.pieces)
            if piece.marker is not None
        ]

    assert markers(1) == [("messages[0]", 0, 1800)]  # explicit, 30 minutes by the request's option
    assert markers(7) == [("tools", 0, 300), ("messages[0]", 0, 300), ("messages[1]", 0, 300)]
    assert markers(12) == [("messages[0]", 0, 300)]  # automatic: at the end of the request
    assert markers(40) == [("messages[0]", 0, 0)]  # the provider's default time
    assert markers(14) == []


def test_a_turn_is_a_prefix_of_the_next(calls: list[Call]) -> None:
    """The answer that was recorded is the message that comes back in the next request."""
    first, second = calls[13], calls[14]  # Mistral, two turns
    assert second.parts[0].key == first.parts[0].key
    assert second.parts[2].pieces[0].key == first.answer[0].key
    tools = calls[17:20]  # DeepSeek, with thoughts and calls
    assert tools[1].parts[4].pieces[0].kind == "reasoning"
    assert [p.key for p in tools[2].parts[0].pieces] == [p.key for p in tools[1].parts[0].pieces]
    assert tuple(p.key for p in tools[0].answer) == tuple(p.key for p in tools[1].parts[4].pieces)
