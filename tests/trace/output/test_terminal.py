"""The report in a terminal: what is said, at any width, with no control character of a prompt."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from agentkv.trace.output import terminal
from agentkv.trace.report import TraceReport

from . import sample


def printed(report: TraceReport, width: int = 100, *, colour: bool = False, top: int = 5) -> str:
    to = io.StringIO()
    out = Console(
        file=to,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    terminal.write(report, out, names=["logs/[b]requests.jsonl"], top=top)
    return to.getvalue()


def test_the_rates_the_causes_and_where_to_look() -> None:
    text = printed(sample.report())
    lines = [line.split() for line in text.splitlines()]
    assert "logs/[b]requests.jsonl" in text
    assert "240 requests, 12 sessions, about 812,340 prompt tokens" in text
    assert ["now", "41.2"] in [[row[0], row[2]] for row in lines if len(row) > 3]
    assert "87.1 %" in text and "91.3 %" in text
    assert "by providers, 230 of 240 requests" in text
    assert "KV101 timestamp-in-prefix" in text and "76.8 %" in text
    assert "logs/requests.jsonl:84" in text
    assert "14:40:02." in text and "14:41:07." in text
    assert "406,800" in text
    assert "Put the time at the end" in text
    assert "Not read: 2 not JSON." in text and "logs/requests.jsonl:77" in text


def test_causes_stand_in_the_order_of_their_cost() -> None:
    text = printed(sample.report())
    assert text.index("312,400") < text.index("81,000") < text.index("13,400")


@pytest.mark.parametrize("width", [40, 50, 72, 80, 96, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in printed(sample.report(), width).splitlines()) <= width


@pytest.mark.parametrize("colour", [False, True])
def test_a_prompt_cannot_drive_the_terminal(colour: bool) -> None:
    cause = sample.causes()[2]
    report = replace(
        sample.report(), causes=(replace(cause, worst=cause.first, segment="a\x1b]0;x\x07b"),)
    )
    text = printed(report, 200, colour=colour)
    assert "‹U+001B›[31m‹U+202E›" in text
    assert "\u202e" not in text and "\x07" not in text
    assert ("\x1b" in text) == colour


def test_the_first_example_stands_in_where_the_worst_has_no_text() -> None:
    text = printed(sample.report())
    assert "first logs/requests.jsonl:30" in text
    assert "nothing" in text or "∅" in text


def test_top_says_how_many_causes_have_examples() -> None:
    assert "Put the time" not in printed(sample.report(), top=0)
    one = printed(sample.report(), top=1)
    assert "Put the time" in one and "Sort the tools" not in one


def test_a_healthy_and_an_empty_log() -> None:
    rates = replace(sample.report().rates, now=0.913)
    healthy = printed(
        replace(sample.report(), rates=rates, causes=(), problems={}, problem_lines=())
    )
    assert "Nothing was lost" in healthy and "Not read" not in healthy
    empty = replace(
        sample.report(), requests=0, sessions=0, prompt_tokens=0, causes=(), timeline=()
    )
    text = printed(empty)
    assert "0 requests" in text and "Nothing was lost" not in text
    assert "Not read: 2 not JSON." in text


def test_a_log_of_hashes_is_not_called_healthy() -> None:
    text = printed(replace(sample.report(), causes=(), first_calls=0, appended=0))
    assert "Causes are unknown" in text and "Nothing was lost" not in text


def test_what_a_cache_does_not_serve_is_no_ones_fault_but_is_said() -> None:
    report = replace(sample.report(), causes=())
    text = " ".join(printed(report, 200).split())
    assert "Nothing was lost to the prompts" in text
    assert "406,982 tokens more stood in earlier prompts" in text
    assert "tokens more" not in printed(sample.report())
    full = replace(report, rates=replace(report.rates, now=0.913))
    assert "Nothing was lost: every prompt" in printed(full)


def test_what_is_unknown_is_not_shown_as_a_number() -> None:
    report = sample.report()
    text = printed(replace(report, rates=replace(report.rates, fixed=None)))
    assert "fixed" not in text
