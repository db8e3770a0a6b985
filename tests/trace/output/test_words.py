"""Numbers and texts as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.trace.output import words
from agentkv.trace.output.difference import difference, one_line, visible, visible_marked


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0, "0.0 %"),
        (0.4118, "41.2 %"),
        (1, "100.0 %"),
        (0.9996, "99.96 %"),
        (0.999_999_9, ">99.999 %"),
        (0.000_4, "0.04 %"),
        (0.000_000_1, "<0.001 %"),
        (None, "unknown"),
    ],
)
def test_a_rate_is_never_rounded_to_all_or_nothing(share: float | None, said: str) -> None:
    assert words.percent(share) == said


@pytest.mark.parametrize(
    ("n", "said"),
    [(0, "0"), (812, "812"), (999, "999"), (1000, "1.0k"), (31_240, "31.2k"), (4_100_000, "4.1M")],
)
def test_short_counts(n: int, said: str) -> None:
    assert words.short(n) == said


def test_times_are_utc_and_short_traces_count_from_their_start() -> None:
    assert words.moment(1_790_000_000) == "2026-09-21 14:13:20"
    assert words.moment(12.34) == "+12.3 s"
    assert words.moment(None) == ""
    assert words.moment(1e30) == ""
    assert words.ticks([None, None]) == ["", ""]
    assert words.ticks([0.0, 60.0]) == ["+0 s", "+60 s"]
    assert words.ticks([1_790_000_000, 1_790_000_000 + 7200]) == ["14:13", "16:13"]


def test_a_difference_is_shown_by_whole_words() -> None:
    d = difference("It is 14:02:11 now.", "It is 14:02:19 now.")
    assert (d.before, d.was, d.now, d.after) == ("It is ", "14:02:11", "14:02:19", " now.")


def test_what_was_added_at_the_end_differs_from_nothing() -> None:
    d = difference("one two", "one two three")
    assert d.before + d.was + d.after == "one two"
    assert d.before + d.now + d.after == "one two three"


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_difference_loses_no_text(was: str, now: str) -> None:
    d = difference(was, now)
    assert d.before + d.was + d.after == was
    assert d.before + d.now + d.after == now


@given(st.text(max_size=60))
def test_what_is_shown_has_no_control_characters(text: str) -> None:
    assert visible(text).isprintable() or any(ord(c) > 0x2FF for c in text)
    assert "\x1b" not in visible(text) and "\n" not in visible(text)
    assert len(one_line(text, 10)) <= 10


def test_blanks_that_differ_are_seen() -> None:
    assert visible_marked("  ") == "··"
    assert visible_marked("\n") == "⏎"
    assert visible("a\u202eb\u00a0c") == "a‹U+202E›b‹U+00A0›c"
