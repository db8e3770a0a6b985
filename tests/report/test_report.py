"""The report: one form wherever it comes from, small where it is stored."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentkv.engine.types import CacheFacts, Choice, Miss, RequestOutput, Span, Timings
from agentkv.layout import arrange
from agentkv.prompt import Prompt, static, volatile
from agentkv.report import CacheReport, MissUse, SegmentUse, table


def output(
    spans: int = 3, *, miss: Miss | None = None, page_size: int = 1, prompt: int = 100
) -> RequestOutput:
    made = tuple(
        Span(
            name=f"messages[{i}]",
            kind="instructions" if i == 0 else "history",
            start=i,
            end=i + 1,
        )
        for i in range(spans)
    )
    return RequestOutput(
        request_id="r1",
        model="m",
        prompt_token_ids=np.zeros(prompt, dtype=np.int32),
        choices=(Choice(index=0, text="hi", token_ids=(1, 2), finish_reason="stop"),),
        cache=CacheFacts(
            prompt_tokens=prompt,
            cached_tokens=60,
            cached_by_tier={"device": 60},
            reusable_tokens=70,
            resident_tokens=60,
            page_size=page_size,
            miss=miss,
            span_cached=tuple((s.name, 10, 5) for s in made),
        ),
        times=Timings(queue=0.12345, prefill=3.0, ttft=4.0, decode=5.0, saved_prefill=9.0),
        spans=made,
    )


LONG = Miss(
    token=60, reason="text_changed", segment="messages[0]", was="w" * 999, now="n" * 999, detail="d"
)


def test_from_output_has_the_facts() -> None:
    report = CacheReport.from_output(output(miss=LONG))
    assert (report.prompt_tokens, report.cached_tokens, report.computed_tokens) == (100, 60, 40)
    assert report.completion_tokens == 2
    assert report.hit_rate == 0.6
    assert report.reason == "text_changed"
    assert dict(report.cached_by_tier) == {"device": 60, "host": 0, "disk": 0}
    assert report.segments[0] == SegmentUse("messages[0]", "instructions", None, 10, 5)


def test_created_tokens_are_whole_pages() -> None:
    assert CacheReport.from_output(output()).created_tokens == 40
    assert CacheReport.from_output(output(page_size=16)).created_tokens == 96 - 60


def test_the_summary_is_what_the_design_says() -> None:
    got = CacheReport.from_output(output(5)).to_dict()
    assert got["schema"] == 1
    assert [s["name"] for s in got["segments"]] == ["instructions", "history"]
    assert got["segments"][1] == {
        "name": "history",
        "kind": "history",
        "stability": None,
        "tokens": 40,
        "cached": 20,
    }
    assert got["miss"] is None
    assert got["layout"] is None
    assert got["ms"]["queue"] == 0.123


def test_the_summary_stays_small_whatever_the_prompt() -> None:
    """1,000 messages, 60 marked units, 60 refusals, long quotations: under 2 KB, sums kept."""
    parts = [volatile(f"See above. {i}", name=f"unit-{i}-" + "x" * 90) for i in range(60)]
    arrangement = arrange([{"role": "system", "content": parts}, {"role": "user", "content": "?"}])
    assert len(arrangement.refused) == 60
    report = CacheReport.from_output(output(1000, miss=LONG)).with_layout(arrangement)
    named = tuple(SegmentUse(f"unit-{i}-" + "x" * 90, "context", "call", 7, 3) for i in range(60))
    report = CacheReport.from_dict(
        {**report.to_dict("full"), "segments": [s.to_dict() for s in (*report.segments, *named)]}
    )
    small = report.to_dict()
    assert len(json.dumps(small)) < 2048
    assert sum(s["tokens"] for s in small["segments"]) == 1000 * 10 + 60 * 7
    assert sum(s["cached"] for s in small["segments"]) == 1000 * 5 + 60 * 3
    assert len(small["miss"]["was"]) <= 80


def test_full_reads_back_equal() -> None:
    report = CacheReport.from_output(output(miss=LONG)).with_layout(
        arrange([{"role": "user", "content": "?"}])
    )
    assert CacheReport.from_dict(json.loads(json.dumps(report.to_dict("full")))) == report
    with pytest.raises(ValueError, match="schema 9"):
        CacheReport.from_dict({"schema": 9})


def test_usage_of_our_server_and_of_others() -> None:
    ours = {
        "prompt_tokens": 100,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 60},
        "agentkv": {
            "page_size": 16,
            "cached_by_tier": {"device": 50, "host": 10, "disk": 0},
            "miss": {"token": 60, "reason": "appended"},
            "segments": [{"name": "tools", "kind": "tools", "tokens": 80, "cached": 60}],
            "ms": {"ttft": 3.5},
        },
    }
    report = CacheReport.from_usage(ours)
    assert report.cached_by_tier["host"] == 10
    assert report.reason == "appended"
    assert report.page_size == 16
    assert report.segments[0].tokens == 80
    deepseek = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "completion_tokens": 1}
    assert CacheReport.from_usage(deepseek).cached_tokens == 64
    nulls = {"prompt_tokens": 9, "prompt_tokens_details": None, "completion_tokens": 1}
    assert CacheReport.from_usage(nulls).cached_tokens == 0
    assert CacheReport.from_usage(nulls).miss is None, "not made up"


def test_from_message_finds_it_on_messages_chunks_and_generations() -> None:
    data = CacheReport.from_output(output()).to_dict()
    message = SimpleNamespace(response_metadata={"agentkv": data})
    generation = SimpleNamespace(generation_info={"agentkv": data})
    chunk = SimpleNamespace(generation_info=None, message=message)
    for holder in (message, generation, chunk):
        report = CacheReport.from_message(holder)
        assert report is not None
        assert report.cached_tokens == 60
    assert CacheReport.from_message(SimpleNamespace(response_metadata={})) is None


def advice(level: str, reason: Any, segment: str, *parts: Any, **prompt: Any) -> str | None:
    given = Prompt.build(
        [{"role": "system", "content": list(parts)}, {"role": "user", "content": "?"}], **prompt
    )
    miss = Miss(token=60, reason=reason, segment=segment)
    report = CacheReport.from_output(output(miss=miss)).with_layout(arrange(given, level))
    assert report.miss is not None
    assert report.miss.reason == reason, "what the engine found is never rewritten"
    return report.miss.advice


def test_advice_is_given_only_where_cause_and_remedy_are_certain() -> None:
    clock = volatile("Now: 12.", name="clock")
    tied = volatile("Now: 12, see above.", name="clock")
    tools = [{"name": "b"}, {"name": "a"}]
    assert "canonical" in (advice("off", "tool_order", "tools", "x", tools=tools) or "")
    assert advice("canonical", "tool_order", "tools", "x", tools=tools) is None
    assert "static_first" in (advice("off", "text_changed", "clock", clock) or "")
    assert "left where it is" in (advice("static_first", "text_changed", "clock", tied) or "")
    assert "volatile()" in (advice("static_first", "text_changed", "messages[0]", "Now") or "")
    assert advice("static_first", "text_changed", "messages[1]", static("x")) is None
    assert advice("static_first", "appended", "messages[0]", "x") is None
    assert "pool_tokens" in (advice("off", "evicted", "messages[0]", "x") or "")


def test_a_miss_reads_back() -> None:
    miss = MissUse.from_miss(LONG)
    assert MissUse.from_dict(miss.to_dict()) == miss


def test_the_table_has_a_row_a_call_and_the_sums() -> None:
    from rich.console import Console

    report = CacheReport.from_output(output(miss=LONG))
    out = io.StringIO()
    Console(width=120, file=out).print(table([report, report], title="calls"))
    text = out.getvalue()
    assert text.count("text_changed in messages[0] at 60") == 2
    assert "200" in text
    assert "60.0 %" in text
