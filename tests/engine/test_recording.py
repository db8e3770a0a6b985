"""The rows of a recording, and the file that they are appended to."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.engine import record_file
from agentkv.engine.record_file import RecordFile
from agentkv.engine.recording import (
    KEY_VARIABLE,
    LEAST,
    MOST,
    Digests,
    chunks,
    message_digest,
    span_rows,
)
from agentkv.engine.types import IntArray, Span

NO_KEY = Digests(b"")


def ids(count: int, seed: int = 0) -> IntArray:
    return np.random.default_rng(seed).integers(0, 50_000, count).astype(np.int32)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# -- rows


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 9, 12, 64, 65, 200, 3400])
@pytest.mark.parametrize("same", [False, True])
def test_chunks_cover_everything_within_their_bounds(count: int, same: bool) -> None:
    given = np.full(count, 5, dtype=np.int32) if same else ids(count)
    runs = chunks(given)
    assert [a for a, _ in runs] == [0, *(b for _, b in runs)][: len(runs)]
    assert (runs[-1][1] if runs else 0) == count
    assert all(b - a <= MOST for a, b in runs)
    assert all(b - a >= LEAST for a, b in runs[:-1])


@pytest.mark.parametrize("at", [0, 1, 500, 1999])
@pytest.mark.parametrize("more", [1, 7, 100])
def test_behind_an_insertion_the_same_chunks_come_again(at: int, more: int) -> None:
    one = ids(3000)
    two = np.concatenate([one[:at], ids(more, 1), one[at:]])
    old = {NO_KEY.ids(one[a:b]) for a, b in chunks(one)}
    fresh = sum(b - a for a, b in chunks(two) if NO_KEY.ids(two[a:b]) not in old)
    assert more <= fresh <= more + 4 * MOST


def test_spans_are_divided_without_a_rest() -> None:
    prompt = ids(300)
    spans = (
        Span(name="tools", kind="tools", start=0, end=101, digest="ab" * 12, items=("f", "g")),
        Span(
            name="messages[0]",
            kind="instructions",
            start=101,
            end=290,
            role="system",
            digest="cd" * 12,
        ),
        Span(name="generation_prompt", kind="template", start=290, end=300),
    )
    rows = span_rows(prompt, spans, NO_KEY, [("f", "x" * 30), ("g", "y" * 70)])
    assert [(r[0], r[1], r[2], r[3], r[4]) for r in rows] == [
        ("tools", "tools", None, 0, 101),
        ("messages[0]", "instructions", "system", 101, 290),
        ("generation_prompt", "template", None, 290, 300),
    ]
    for row in rows:
        assert sum(item[2] for item in row[6]) == row[4] - row[3]
    assert [(i[0], i[2]) for i in rows[0][6]] == [("f", 30), ("g", 71)]
    assert rows[0][5] == "ab" * 8
    assert len(rows[2][6]) == 1
    # Without definitions that fit the span, tools are chunks like anything else.
    assert all(i[0] is None for i in span_rows(prompt, spans, NO_KEY, [("f", "x")])[0][6])


def test_a_prompt_without_spans_is_one() -> None:
    ((name, kind, role, start, end, _, items),) = span_rows(ids(40), (), NO_KEY)
    assert (name, kind, role, start, end) == ("prompt", "context", None, 0, 40)
    assert sum(i[2] for i in items) == 40


def test_digests_depend_on_the_key_and_on_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = ids(100)
    plain = NO_KEY.ids(prompt)
    assert Digests(b"").ids(prompt.astype(np.int64)) == plain
    assert Digests(b"secret").ids(prompt) != plain
    assert Digests(b"k" * 100).text("a") != Digests(b"k" * 99).text("a")
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    assert Digests().ids(prompt) == Digests(b"secret").ids(prompt)
    assert Digests().content("ab" * 12) != NO_KEY.content("ab" * 12) == "ab" * 8
    monkeypatch.delenv(KEY_VARIABLE)
    assert Digests().ids(prompt) == plain


def test_a_message_has_the_digest_of_its_span() -> None:
    """The renderer's digest and ours, for text, thoughts and calls in both spellings."""
    from agentkv.engine.text.messages import read_messages
    from agentkv.engine.text.owners import assign_owners
    from agentkv.engine.text.template import ChatTemplate

    source = (
        "{%- for m in messages %}{{ m.role }}{{ m.content }}{{ m.reasoning_content }}{{ m.tool_calls }}"
        "{%- endfor %}"
    )
    template = ChatTemplate(source)
    message = {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "x1", "function": {"name": "find", "arguments": '{"b": 1, "a": "é"}'}},
            {"id": "x2", "function": {"name": "stop", "arguments": ""}},
        ],
    }
    owners = assign_owners(read_messages([message], template), None)
    want = owners.all[0].digest
    calls = [("find", '{"b": 1, "a": "é"}'), ("stop", "")]
    assert message_digest("Let me see.", "hm", calls) == want
    assert (
        message_digest("Let me see.", "hm", [("find", {"b": 1, "a": "é"}), ("stop", None)]) == want
    )
    assert message_digest("Let me see.", "", calls) != want


# -- the file


def test_lines_are_appended_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordFile(path) as file:
        file.write(lambda: {"n": 1})
        file.write(lambda: None)
        file.write(lambda: {"n": "\u2028\ud800"})
        assert lines(path)[0] == {"n": 1}  # there at once, and not at the end
    with RecordFile(path) as file:
        file.write(lambda: {"n": 3})
        assert (file.lines, file.lost) == (1, 0)
    found = path.read_bytes().split(b"\n")
    assert len(found) == 4 and found[-1] == b""
    assert json.loads(found[1]) == {"n": "\u2028\ud800"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_others_can_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        RecordFile(path).close()
    assert "can be read by others (mode 644)" in caplog.text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_behind_a_line_that_was_cut_off_the_next_begins_afresh(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"n": 1}\n{"n": ')
    with RecordFile(path) as file:
        file.write(lambda: {"n": 2})
    assert path.read_text() == '{"n": 1}\n{"n": \n{"n":2}\n'


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_breaks_no_call_and_is_told_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    background: bool,
) -> None:
    path = tmp_path / "run.jsonl"
    real, full = os.write, [True]

    def write(fd: int, data: bytes) -> int:
        if full[0] and len(data) > 4 and data[0] == ord("{"):
            return real(fd, data[:4])  # a part of it still fits
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    file = RecordFile(path, background=background)
    with caplog.at_level(logging.WARNING):
        for n in range(3):
            file.write(lambda n=n: {"lost": n})  # type: ignore[misc]
        file.write(lambda: {"secret": 1 / 0})
        while file.lost < 4:
            time.sleep(0.001)
        full[0] = False
        file.write(lambda: {"kept": 1})
        file.close()
        file.write(lambda: {"late": 1})
        if not background:
            assert file.lost == 5
    assert file.lines == 1
    assert path.read_text() == '{"lo\n{"kept":1}\n'
    assert caplog.text.count("was not recorded") == 1
    assert "secret" not in caplog.text


def test_a_slow_disk_does_not_hold_up_calls(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(record_file, "WAITING", 4)
    gate = threading.Event()

    def slow() -> dict[str, Any]:
        gate.wait(10)
        return {"n": 1}

    file = RecordFile(tmp_path / "run.jsonl", background=True)
    began = time.monotonic()
    for _ in range(20):
        file.write(slow)
    assert time.monotonic() - began < 1
    assert file.lost >= 15
    gate.set()
    file.close()
    assert file.lines + file.lost == 20


def test_threads_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordFile(path) as file:

        def work(who: int) -> None:
            for n in range(50):
                file.write(lambda n=n: {"who": who, "n": n, "fill": "x" * 3000})  # type: ignore[misc]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    found = lines(path)
    for who in range(4):
        assert [r["n"] for r in found if r["who"] == who] == list(range(50))


APPEND = """
import sys
from agentkv.engine.record_file import RecordFile

with RecordFile(sys.argv[1]) as file:
    for n in range(50):
        file.write(lambda: {"who": sys.argv[2], "n": n, "fill": "x" * 20_000})
"""


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    made = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(path), str(who)]) for who in range(2)
    ]
    assert [p.wait(60) for p in made] == [0, 0]
    assert len(lines(path)) == 100


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        RecordFile(tmp_path / "nowhere" / "run.jsonl")
