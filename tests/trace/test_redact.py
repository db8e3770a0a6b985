"""Redaction: nothing of a text is left, and reports say what they said."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.trace.analyse import analyse
from agentkv.trace.call import Call, Part, Piece, Usage
from agentkv.trace.readers import Problems, read
from agentkv.trace.redact import Redactor, redacted
from agentkv.trace.render import Renderer
from agentkv.trace.report import TraceReport
from agentkv.trace.veil import Veil, is_label
from tests.trace.build import call
from tests.trace.causes.logs import FORMATS, HEALTHY, PLANTED, Shape, log

KEY = bytes(range(32))
VEIL = Veil(KEY)


def written(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return path


def report(path: Path) -> TraceReport:
    return analyse(lambda: read([path]), renderer=Renderer(), fixed=False)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", [*PLANTED, *HEALTHY])
def test_a_report_says_the_same_of_a_redacted_log(kind: str, form: str, tmp_path: Path) -> None:
    shape = Shape(seed=7, sessions=3, domain="airline", place="middle", style=1)
    lines = [json.dumps(line) for line in log(kind, shape, form)]
    before = report(written(tmp_path / "log.jsonl", lines))
    hidden = redacted(read([tmp_path / "log.jsonl"]), Redactor(KEY))
    after = report(written(tmp_path / "redacted.jsonl", hidden))
    assert (after.requests, after.sessions) == (before.requests, before.sessions) == (24, 3)
    assert after.prompt_tokens == before.prompt_tokens
    assert [(c.reason, c.rule, c.count) for c in after.causes] == [
        (c.reason, c.rule, c.count) for c in before.causes
    ]
    assert [c.tokens_lost for c in after.causes] == pytest.approx(
        [c.tokens_lost for c in before.causes], rel=0.005
    )
    # Ids that began alike by chance do so no more: a token here and there.
    assert after.rates.now == pytest.approx(before.rates.now, abs=0.002)
    assert bool(before.causes) == (kind in PLANTED)


SECRETS = [
    "Zanzibar", "Wolfeschlegel", "zq-cust-88417", "4929135578421306", "+49 172 5550134",
    "q.wolfe@zanzibar-holding.example", "/srv/zanzibar/payroll.csv", "0xdeadbeef42",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479", "Grünwäldchen", "東京都庁", "Ленинград", "sk_live_9aX7Qw3Zr",
]  # fmt: skip


def secret_calls() -> list[Call]:
    text = "You serve " + ", ".join(SECRETS) + "."
    tool = json.dumps(
        {
            "name": "zanzibar_pay",
            "description": text,
            "parameters": {"type": "object", "properties": {"Wolfeschlegel": {"enum": SECRETS}}},
        }
    )
    base = call(
        ("user", text),
        system=text,
        tools=[("zanzibar_pay", tool)],
        answer=text,
        id="id-Zanzibar",
        session="session-Zanzibar",
        user="Wolfeschlegel",
        salt="salt-Zanzibar",
        error="400: Zanzibar is not allowed",
        model="ft:gpt-4o:zanzibar::1",
        provider="Zanzibar Inc",
        settings={"response_format": json.dumps({"title": "Zanzibar"})},
        usage=Usage(prompt=100, cached=50),
        time=1_772_442_063.0,
    )
    pieces = (
        Piece("image", "data:image/png;base64," + "WmFuemliYXI=" * 40),
        Piece("image", "https://img.zanzibar.example/a.png?sig=sk_live_9aX7Qw3Zr"),
        Piece("document", text, name="Zanzibar.pdf", marker=300),
        Piece("tool_call", json.dumps({"Zanzibar": SECRETS}), name="zanzibar_pay"),
        Piece("tool_result", json.dumps({"id": "Zanzibar", "status": SECRETS, "type": "Zanzibar"})),
        Piece("reasoning", text),
    )
    odd = Part("Zanzibar", "Zanzibar", "Zanzibar", pieces)
    gone = Part(
        "messages[9]",
        "history",
        "user",
        (Piece("text", "", redacted=True, key="Zanzibar", size=9),),
    )
    return [Call(**{**base.__dict__, "parts": (*base.parts, odd, gone)})]


def test_no_secret_is_left() -> None:
    (line,) = redacted(secret_calls(), Redactor(KEY))
    shown = json.dumps(json.loads(line), ensure_ascii=False)
    for raw in (line, shown, line.casefold()):
        for secret in [*SECRETS, "WmFuemliYXI"]:
            for bit in secret.replace("+49 172 ", "").split():
                assert bit not in raw and bit.casefold() not in raw, (bit, line)
    assert "zanzibar" not in line.casefold()


def test_what_is_kept() -> None:
    (line,) = redacted(secret_calls(), Redactor(KEY))
    kept = json.loads(line)
    assert kept["model"].startswith("ft:gpt-4o:")
    assert kept["usage"] == [100, 50, None, None]
    assert kept["time"] == 1_772_442_063.0
    assert kept["error"] == "failed"
    assert [p[0] for p in kept["parts"][:3]] == ["tools", "messages[0]", "messages[1]"]
    marked = [p for part in kept["parts"] for p in part[3] if p[3] is not None]
    assert [(p[0], p[3]) for p in marked] == [("document", 300)]


def test_one_key_one_word_and_another_key_another() -> None:
    calls = secret_calls()
    first, again = (next(redacted(calls, Redactor(KEY))) for _ in range(2))
    other = next(redacted(calls, Redactor(KEY[::-1])))
    unnamed = {next(redacted(calls, Redactor())) for _ in range(3)}
    assert first == again
    assert first != other
    assert len(unnamed) == 3
    with pytest.raises(ValueError, match="can be guessed"):
        Redactor(b"short")


def test_different_words_stay_different() -> None:
    words = ["".join(w) for w in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=2)]
    assert len({VEIL.text(w) for w in words}) == len(words)
    numbers = [str(n) for n in range(1, 12_000)]
    assert len({VEIL.text(n) for n in numbers}) == len(numbers)
    labels = [w for w in words if is_label(w)]
    assert 0 < len(labels) < 30
    assert all(VEIL.text(w) == w for w in labels)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_a_veiled_text_is_as_long_and_says_the_same_twice(text: str) -> None:
    veiled = VEIL._plain(text)
    assert veiled == VEIL._plain(text)
    assert len(veiled) == len(text)
    assert [c.isspace() for c in veiled] == [c.isspace() for c in text]


def test_forms_of_one_word_stay_forms_of_one_word() -> None:
    text = "Café Zürich crème brûlée ESPAÑA"
    composed, apart = (VEIL.text(unicodedata.normalize(f, text)) for f in ("NFC", "NFD"))
    assert composed != apart
    assert unicodedata.normalize("NFC", apart) == composed
    assert VEIL.text("Hamburg").lower() == VEIL.text("hamburg") != "hamburg"
    assert VEIL.text("12,345.60").replace(",", "").replace(".", "") == VEIL.text(
        "12.345,60"
    ).replace(",", "").replace(".", "")


def test_json_stays_json_with_the_same_values_in_any_order() -> None:
    a = '{"b": 4711, "a": {"x": ["Z\\u00fcrich\\n", -1.5e10, true]}}'
    b = '{"a":{"x":["Zürich\\n",-1.5e10,true]},"b":4711}'
    one, other = json.loads(VEIL.text(a)), json.loads(VEIL.text(b))
    assert one == other
    assert "rich" not in VEIL.text(b) and "4711" not in VEIL.text(a)


def test_a_redacted_log_reads_back_as_it_was_written(tmp_path: Path) -> None:
    calls = secret_calls()
    path = written(tmp_path / "a.jsonl", redacted(calls, Redactor(KEY)))
    problems = Problems()
    (again,) = read([path], problems=problems)
    assert not problems.bad
    assert [len(p.pieces) for p in again.parts] == [len(p.pieces) for p in calls[0].parts]
    assert [p.kind for part in again.parts for p in part.pieces] == [
        p.kind for part in calls[0].parts for p in part.pieces
    ]
    assert again.parts[-1].pieces[0].redacted and again.parts[-1].pieces[0].size == 9
    # Once more, under another key: still as long.
    path = written(tmp_path / "b.jsonl", redacted([again], Redactor()))
    (twice,) = read([path])
    assert [p.size for p in twice.parts[1].pieces] == [p.size for p in calls[0].parts[1].pieces]


def test_a_damaged_redacted_log_is_counted(tmp_path: Path) -> None:
    good = next(redacted(secret_calls(), Redactor(KEY)))
    lines = [
        good,
        '{"agentkv_redacted": 9, "parts": []}',
        '{"agentkv_redacted": 1, "parts": [["messages[0]", "history", "user", [["odd", "x", null, null]]]]}',
        '{"agentkv_redacted": 1, "parts": [3]}',
        '{"agentkv_redacted": 1}',
    ]
    problems = Problems()
    found = list(read([written(tmp_path / "a.jsonl", lines)], problems=problems))
    assert len(found) == 1
    assert problems.bad == 4


def test_a_hash_trace_keeps_its_blocks(tmp_path: Path) -> None:
    raw = [
        {"timestamp": i, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1 + i % 2]}
        for i in range(6)
    ]
    path = written(tmp_path / "m.jsonl", map(json.dumps, raw))
    hidden = written(tmp_path / "r.jsonl", redacted(read([path]), Redactor(KEY)))
    assert report(hidden).rates.now == report(path).rates.now > 0.5
