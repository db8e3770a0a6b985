"""What kind of value a text is, and what kind of change."""

from __future__ import annotations

import pytest

from agentkv.trace.causes.values import around, kind_of, kind_of_change, same_but_locale


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2026-09-11T08:00:00Z", "clock"),
        ("2026-09-11 08:00", "clock"),
        ("8:05 PM", "clock"),
        ("Thu, 11 Sep 2026 08:00:00 GMT", "clock"),
        ("March 3, 2026 at 10:05 AM", "clock"),
        ("1757577600", "clock"),
        ("1757577600123", "clock"),
        ("20260911T080000Z", "clock"),
        ("3 March 2026", "date"),
        ("11.09.2026", "date"),
        ("Freitag, 11. September 2026", "date"),
        ("2026年9月11日", "date"),
        ("a1b2c3d4-1111-2222-3333-444455556666", "uuid"),
        ("req_8f3kd02", "id"),
        ("01HZX3K9W2M4N5P6Q7R8S9T0V1", "id"),
        ("deadbeef12", "id"),
        ("alice@example.org", "email"),
        ("0x7f3a2b1c4d50", "address"),
        ("/tmp/tmpabc123/x", "path"),
        ("1,234.56", "number"),
        ("Alice Smith", "words"),
        ("user42", "words"),
        ("gpt-4o", "words"),
    ],
)
def test_kind_of(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("1,234.56", "1.234,56", "locale"),
        ("$1,234.50", "1.234,50 €", "locale"),
        ("09/11/2026", "11.09.2026", "locale"),
        ("September 11, 2026", "11. September 2026", "locale"),
        ("11 March 2026", "11. März 2026", "locale"),
        ("Friday", "Freitag", "locale"),
        ("3:05 PM", "15:05", "locale"),
        ("Friday", "Samstag", "date"),
        ("2026-09-11", "2026-11-09", "date"),
        ("1,234", "1,235", "number"),
        ("10:05", "10:06", "clock"),
        ("a  b", "a b", "whitespace"),
        ("a\r\nb", "a\nb", "whitespace"),
        ("it\u2019s", "it's", "unicode"),
        ("caf\u00e9", "cafe\u0301", "unicode"),
        ("0.8)", "0.8) ...", "words"),
    ],
)
def test_kind_of_change(old: str, new: str, kind: str) -> None:
    assert kind_of_change(old, new) == kind


def test_another_number_is_no_locale() -> None:
    assert not same_but_locale("1,234.56", "1.234,57")
    assert not same_but_locale("12 apples", "12 pears")


def test_around_is_the_whole_value() -> None:
    line = "It is 2026-09-11T08:00:07Z now"
    value = around(line, line.index("7Z"), line.index("7Z") + 1)
    assert value is not None and line[value.start : value.end] == "2026-09-11T08:00:07Z"
    assert around(line, 0, 2) is None
