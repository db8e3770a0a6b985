"""Counts of other servers: a zero, a number, and nothing said are three different facts."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from agentkv.report import CacheReport, LayoutUse, MissUse, SegmentUse, table
from agentkv.report.counts import Counts, from_langchain, from_server


@pytest.mark.parametrize(
    ("usage", "want"),
    [
        (  # OpenAI
            {
                "prompt_tokens": 100,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
            },
            Counts(100, 3, 64, 30),
        ),
        (  # OpenAI responses
            {
                "input_tokens": 100,
                "output_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0},
            },
            Counts(100, 3, 0, None),
        ),
        (  # vLLM without --enable-prompt-tokens-details
            {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": None},
            Counts(100, 3, None, None),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": None},
            },
            Counts(100, 3, None, None),
        ),
        (  # DeepSeek
            {"prompt_tokens": 100, "completion_tokens": 3, "prompt_cache_hit_tokens": 64},
            Counts(100, 3, 64, None),
        ),
        (  # Anthropic: the input leaves out what was cached
            {
                "input_tokens": 10,
                "output_tokens": 3,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 30,
            },
            Counts(100, 3, 60, 30),
        ),
        (  # Bedrock
            {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 90},
            Counts(100, 3, 90, None),
        ),
        (  # Gemini
            {
                "prompt_token_count": 100,
                "candidates_token_count": 3,
                "cached_content_token_count": 40,
            },
            Counts(100, 3, 40, None),
        ),
        ({}, Counts(0, 0, None, None)),
    ],
)
def test_shapes_of_servers(usage: dict[str, Any], want: Counts) -> None:
    assert from_server(usage) == want


@pytest.mark.parametrize(
    ("details", "cached", "written"),
    [
        ({"cache_read": 60, "cache_creation": 40}, 60, 40),
        ({"cache_read": 0}, 0, None),
        ({}, None, None),
        ({"audio": 3}, None, None),
        ({"flex_cache_read": 50, "flex": 50}, 50, None),
        ({"cache_read": 60, "cache_creation": 0, "ephemeral_5m_input_tokens": 40}, 60, 40),
    ],
)
def test_shapes_of_langchain(
    details: dict[str, Any], cached: int | None, written: int | None
) -> None:
    usage = {"input_tokens": 100, "output_tokens": 3, "input_token_details": details}
    assert from_langchain(usage) == Counts(100, 3, cached, written)


def test_unknown_stays_unknown_everywhere() -> None:
    unknown = CacheReport.from_usage({"prompt_tokens": 90, "completion_tokens": 1})
    zero = CacheReport.from_usage(
        {
            "prompt_tokens": 90,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
    )
    assert (unknown.cached_known, zero.cached_known) == (False, True)
    data = unknown.to_dict()
    assert (data["cached_tokens"], data["computed_tokens"], data["hit_rate"]) == (None, None, None)
    assert (zero.to_dict()["cached_tokens"], zero.to_dict()["hit_rate"]) == (0, 0.0)
    assert unknown.created_tokens == 0, "not made up"
    for report in (unknown, zero):
        assert CacheReport.from_dict(json.loads(json.dumps(report.to_dict("full")))) == report
    assert "does not say" in str(unknown)
    text = drawn(table([unknown, zero]))
    assert text.count("?") == 3
    sums = next(line for line in text.splitlines() if " all " in line)
    numbers = [word for word in sums.split() if word[0].isdigit()]
    assert numbers == ["90", "0", "90", "0.0"], "the unknown call is on neither side"


def test_a_message_of_another_model_has_its_counts() -> None:
    from langchain_core.messages import AIMessage

    message = AIMessage(
        "hi",
        usage_metadata={
            "input_tokens": 100,
            "output_tokens": 3,
            "total_tokens": 103,
            "input_token_details": {"cache_read": 60},
        },
    )
    report = CacheReport.from_message(message)
    assert report is not None
    assert (report.prompt_tokens, report.cached_tokens, report.segments) == (100, 60, ())
    silent = message.model_copy(
        update={"usage_metadata": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}}
    )
    found = CacheReport.from_message(silent)
    assert found is not None
    assert not found.cached_known
    assert CacheReport.from_message(AIMessage("hi")) is None


def full() -> CacheReport:
    return CacheReport(
        prompt_tokens=100,
        cached_tokens=60,
        cached_by_tier={"device": 60, "host": 0, "disk": 0},
        segments=(SegmentUse("<b>tools</b>[x]", "tools", None, 100, 60),),
        miss=MissUse(token=60, reason="text_changed", segment="clock", was="<i>12</i>", now="13"),
        layout=LayoutUse(
            "static_first",
            moved=(("clock", "tail"),),
            refused=(("rules", "it points"),),
            masked=("refund",),
            warnings=("'policy' is marked static and changed",),
            proposed=(("messages[0].line[2]", "tail", 120, 3, 4),),
        ),
        ms={"ttft": 3.5},
    )


def test_from_message_reads_every_form_a_report_is_saved_in() -> None:
    from langchain_core.load import dumpd
    from langchain_core.messages import AIMessage, AIMessageChunk, message_to_dict
    from langchain_core.outputs import ChatGeneration, Generation

    data = full().to_dict("full")
    meta = {"agentkv": data}
    message = AIMessage("x", response_metadata=meta)
    holders: list[Any] = [
        message,
        AIMessageChunk(content="x", response_metadata=meta),
        ChatGeneration(message=message),
        Generation(text="x", generation_info=meta),
        message.model_dump(),
        message_to_dict(message),
        dumpd(message),
        meta,
        data,
    ]
    for holder in holders:
        assert CacheReport.from_message(holder) == full(), holder
    assert CacheReport.from_message(None) is None
    assert CacheReport.from_message({}) is None


def drawn(renderable: Any) -> str:
    from rich.console import Console

    out = io.StringIO()
    Console(width=120, file=out).print(renderable)
    return out.getvalue()


def test_drawn_in_a_terminal_and_in_a_notebook() -> None:
    text = drawn(full())
    for part in (
        "60 of 100 prompt tokens reused (60.0 %), 40 computed",
        "<b>tools</b>[x]",
        "text_changed in clock at 60",
        "rules: it points",
        "refund",
        "is marked static and changed",
        "saves about 120 tokens",
    ):
        assert part in text
    html = full()._repr_html_()
    assert "<i>12" not in html, "a prompt's text is not markup"
    assert "&lt;i&gt;12&lt;/i&gt;" in html
    assert "&lt;b&gt;tools" in html
    assert "60.0 %" in html


def test_the_summary_is_small_with_long_lists_of_every_kind() -> None:
    long = "長い" * 300
    report = CacheReport(
        prompt_tokens=10**6,
        cached_tokens=10**5,
        segments=tuple(SegmentUse(f"{long}{i}", long, "session", 10, 1) for i in range(200)),
        miss=MissUse(
            token=5,
            reason="text_changed",
            segment=long,
            was=long,
            now=long,
            detail=long,
            advice=long,
        ),
        layout=LayoutUse(
            "static_first",
            moved=tuple((f"{long}{i}", "tail") for i in range(100)),
            refused=tuple((f"{long}{i}", long) for i in range(100)),
            masked=tuple(f"{long}{i}" for i in range(100)),
            warnings=tuple(f"{long}{i}" for i in range(100)),
            proposed=tuple((f"{long}{i}", "tail", 1, 2, 3) for i in range(100)),
        ),
        ms=dict.fromkeys(("queue", "prefill", "ttft", "decode"), 123456.789),
        saved_prefill_ms=123456.789,
    )
    small = report.to_dict()
    assert len(json.dumps(small)) < 2048
    assert sum(s["tokens"] for s in small["segments"]) == 2000
    again = CacheReport.from_dict(small).to_dict()
    assert len(json.dumps(again)) < 2048
    assert sum(s["tokens"] for s in again["segments"]) == 2000, "nor does a summary of a summary"
