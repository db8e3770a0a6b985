"""Damaged, truncated, mixed and empty logs: a clear line each, and all the rest is read."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agentkv.trace.readers import LogError, Problems, read


def request(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "top_p": 1, **more}


def line(text: str) -> bytes:
    return json.dumps(request(text)).encode() + b"\n"


def texts(path: Path | str, problems: Problems, **more: Any) -> list[str]:
    return [c.parts[-1].text for c in read([path], problems=problems, **more)]


def read_bytes(tmp_path: Path, data: bytes, name: str = "log") -> tuple[list[str], Problems]:
    (tmp_path / name).write_bytes(data)
    problems = Problems()
    return texts(tmp_path / name, problems), problems


@pytest.mark.parametrize(
    ("bad", "kind", "why"),
    [
        (b'{"model": "m", "messages": [{"role": "us\n', "not JSON", "not JSON: "),
        (b"Traceback (most recent call last):\n", "not JSON", "not JSON: "),
        (b"\x00\x00\x00\x00\n", "not JSON", "not JSON: "),
        (b'{"messages": "\xff\xfe"}\n', "encoding", "not UTF-8 (byte 15 of the line)"),
        (b"[" * 200_000 + b"\n", "not JSON", "nested too deeply"),
        (b"42\n", "unknown format", "JSON, but no object"),
        (b'{"level": "info", "msg": "started"}\n', "unknown format", "keys: level, msg"),
        (b'{"choices": [{"message": {"content": "a"}}]}\n', "reply only", "without its request"),
        (b'{"request": {"a": 1}, "response": {}}\n', "no request", "in no form that is known"),
        (b'{"hash_ids": ["x"], "input_length": 3}\n', "no request", "not whole numbers"),
        (b'{"n": ' + b"9" * 5000 + b"}\n", "not JSON", "not JSON: "),
    ],
)
def test_a_bad_line_is_counted_and_the_rest_is_read(
    tmp_path: Path, bad: bytes, kind: str, why: str
) -> None:
    found, problems = read_bytes(tmp_path, line("a") + bad + line("b"))
    assert found == ["a", "b"]
    assert dict(problems.counts) == {kind: 1}
    (problem,) = problems.first
    assert (problem.line, problem.file) == (2, str(tmp_path / "log"))
    assert why in problem.why
    assert "\n" not in str(problem)
    assert len(str(problem)) < 400
    assert problems.lines == 3
    assert problems.calls == 2


def test_the_text_of_a_prompt_is_in_no_problem(tmp_path: Path) -> None:
    _, problems = read_bytes(tmp_path, b'{"messages": [{"role": "user", "content": "SECRET\n' * 3)
    assert problems.bad == 3
    assert "SECRET" not in " ".join(map(str, problems.first))


def test_a_cut_off_last_line(tmp_path: Path) -> None:
    whole = line("a") + line("b")
    for cut in (len(whole) - 2, len(line("a")) + 5):
        found, problems = read_bytes(tmp_path, whole[:cut])
        assert found == ["a"]
        assert dict(problems.counts) == {"cut off": 1}
        assert str(problems.first[0]).endswith("log:2: the last line is cut off")
    # Without its line break only, the last line is complete.
    found, problems = read_bytes(tmp_path, whole[:-1])
    assert found == ["a", "b"]
    assert problems.bad == 0


def test_a_line_cut_inside_a_character(tmp_path: Path) -> None:
    data = line("a") + json.dumps(request("zoë"), ensure_ascii=False).encode()
    at = data.index("ë".encode()) + 1
    found, problems = read_bytes(tmp_path, data[:at])
    assert found == ["a"]
    assert dict(problems.counts) == {"cut off": 1}


@pytest.mark.parametrize("data", [b"", b"\n\n  \n", b"# only a comment\n", b"\xef\xbb\xbf"])
def test_an_empty_log(tmp_path: Path, data: bytes) -> None:
    found, problems = read_bytes(tmp_path, data)
    assert found == []
    assert dict(problems.counts) == {"empty log": 1}
    assert str(problems.first[0]).endswith("log: the log is empty")


def test_a_log_without_any_call(tmp_path: Path) -> None:
    run = {"run_type": "chain", "id": "1", "inputs": {}}
    found, problems = read_bytes(tmp_path, json.dumps(run).encode())
    assert found == []
    assert problems.skipped == {"chain run": 1}
    assert dict(problems.counts) == {"no call": 1}


def test_gzip_is_told_by_its_bytes(tmp_path: Path) -> None:
    data = b"".join(line(f"r{i} " + "x" * 500) for i in range(2000))
    found, problems = read_bytes(tmp_path, gzip.compress(data), "log.jsonl")
    assert len(found) == 2000
    assert problems.bad == 0
    # Appended to and packed again: two members, and padding behind them.
    members = gzip.compress(data) + gzip.compress(line("last")) + b"\0" * 100
    found, problems = read_bytes(tmp_path, members)
    assert found[-1] == "last"
    assert len(found) == 2001
    assert problems.bad == 0


def test_a_truncated_gzip_keeps_what_was_read(tmp_path: Path) -> None:
    rows = [json.dumps(request(f"{i} " + "x" * 40)) for i in range(3000)]
    packed = gzip.compress(("\n".join(rows) + "\n").encode())
    found, problems = read_bytes(tmp_path, packed[: len(packed) // 2])
    assert 1000 < len(found) < 2999
    assert [int(t.split()[0]) for t in found] == list(range(len(found)))
    assert dict(problems.counts) == {"cut off": 1}
    assert str(problems.first[0]).endswith(
        "the gzip file ends early; what came before its end was read"
    )


def test_a_damaged_gzip(tmp_path: Path) -> None:
    import random

    rng = random.Random(5)
    rows = [json.dumps(request(f"{i} {rng.random()}")) for i in range(5000)]
    packed = bytearray(gzip.compress(("\n".join(rows) + "\n").encode()))
    packed[len(packed) // 2 :][:1] = b""
    middle = len(packed) // 2
    packed[middle : middle + 64] = bytes(64)
    found, problems = read_bytes(tmp_path, bytes(packed))
    assert len(found) > 500
    assert problems.bad >= 1
    assert any("gzip" in p.why for p in problems.first) or problems.counts["not JSON"]


def test_zstd(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    data = b"".join(line(f"{i} " + "x" * 50) for i in range(4000))
    packed = zstandard.ZstdCompressor().compress(data)
    found, problems = read_bytes(tmp_path, packed + zstandard.ZstdCompressor().compress(line("z")))
    assert len(found) == 4001
    assert found[-1] == "z"
    assert problems.bad == 0
    found, problems = read_bytes(tmp_path, packed[:-9])
    assert dict(problems.counts) == {"cut off": 1}
    assert "zstd file ends early" in problems.first[0].why


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"\x28\xb5\x2f\xfd rest")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(LogError, match="zstandard is not installed: pip install zstandard"):
        read([tmp_path / "log"])


def test_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (line("a") + line("b"), gzip.compress(line("a") + line("b"))):

        class Pipe:
            buffer = io.BytesIO(data)

        monkeypatch.setattr(sys, "stdin", Pipe)
        problems = Problems()
        assert texts("-", problems) == ["a", "b"]
    monkeypatch.setattr(sys, "stdin", type("Pipe", (), {"buffer": io.BytesIO(b"no\n")}))
    assert texts("-", problems) == []
    assert str(problems.first[0]).startswith("<stdin>:1: ")


def test_stdin_of_a_real_process() -> None:
    code = "from agentkv.trace.readers import read; print(len(list(read(['-']))))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=line("a") * 3, capture_output=True, check=True
    )
    assert done.stdout == b"3\n"


def test_a_pipe_is_read_once_and_whole(tmp_path: Path) -> None:
    code = (
        "import sys; from agentkv.trace.readers import read; print(len(list(read(sys.argv[1:]))))"
    )
    pipe, plain = tmp_path / "pipe", tmp_path / "plain"
    plain.write_bytes(line("a"))
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(pipe), str(plain)], stdout=subprocess.PIPE
    ) as process:
        pipe.write_bytes(line("b") * 3)
        out, _ = process.communicate(timeout=60)
    assert out == b"4\n"


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"there is no file .*nowhere\.jsonl$"):
        read([tmp_path / "nowhere.jsonl"])  # at once, not at the first call
    with pytest.raises(LogError, match="is a directory; name the log files in it"):
        read([tmp_path])
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04....")
    with pytest.raises(LogError, match="is a zip archive: unpack it first"):
        read([tmp_path / "a.zip"])


def test_a_mixed_log(tmp_path: Path) -> None:
    rows = [
        json.dumps(request("chat")),
        json.dumps({"contents": [{"role": "user", "parts": [{"text": "gemini"}]}]}),
        json.dumps({"conversations": [{"from": "human", "value": "sharegpt"}]}),
        json.dumps({"model": "gpt-5", "input": "responses"}),
        "2025-06-15 12:00:00 INFO " + json.dumps(request("behind a logger's words")),
        json.dumps({"prompt": "text", "model": "m"}),
    ]
    found, problems = read_bytes(tmp_path, "\n".join(rows).encode())
    assert found == ["chat", "gemini", "sharegpt", "responses", "behind a logger's words", "text"]
    assert problems.bad == 0
    assert dict(problems.formats) == {
        "openai": 2,
        "gemini": 1,
        "sharegpt": 1,
        "responses": 1,
        "completion": 1,
    }


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_and_utf16(tmp_path: Path, encoding: str) -> None:
    """What a redirect of some shells writes; line breaks of Windows."""
    text = "\r\n".join(json.dumps(request(t), ensure_ascii=False) for t in ("zoë", "b")) + "\r\n"
    found, problems = read_bytes(tmp_path, text.encode(encoding))
    assert found == ["zoë", "b"]
    assert problems.bad == 0


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_and_an_export_in_one_object(tmp_path: Path, indent: int | None) -> None:
    rows = [request(t) for t in ("a", "b", "c")]
    for value in (rows, {"data": rows, "meta": {"page": 1}}, {"runs": rows}):
        found, problems = read_bytes(tmp_path, json.dumps(value, indent=indent).encode())
        assert found == ["a", "b", "c"]
        assert problems.bad == 0


def test_values_over_several_lines_one_after_the_other(tmp_path: Path) -> None:
    """As the console exporter of OpenTelemetry prints spans."""
    data = "\n".join(json.dumps(request(t), indent=4) for t in ("a", "b {[", "c"))
    found, problems = read_bytes(tmp_path, data.encode())
    assert found == ["a", "b {[", "c"]
    assert problems.bad == 0


def test_damage_inside_an_array_costs_one_element(tmp_path: Path) -> None:
    rows = json.dumps([request(t) for t in ("a", "b", "c")], indent=2)
    broken = rows.replace('"content": "b"\n', '"content": "b\n')
    found, problems = read_bytes(tmp_path, broken.encode())
    assert found == ["a", "c"]
    assert problems.bad == 1
    assert problems.first[0].line == rows[: rows.index('"b"')].count("\n") - 4
    cut = rows[: rows.index('"c"')]
    found, problems = read_bytes(tmp_path, cut.encode())
    assert found == ["a", "b"]
    assert dict(problems.counts) == {"cut off": 1}


def test_a_line_without_end_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.trace.readers import lines

    monkeypatch.setattr(lines, "LIMIT", 1 << 20)
    data = line("a") + b'{"messages": "' + b"x" * (3 << 20) + b'"}\n' + line("b")
    found, problems = read_bytes(tmp_path, data)
    assert found == ["a", "b"]
    assert dict(problems.counts) == {"too long": 1}
    assert problems.first[0].line == 2


def test_only_the_first_problems_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    _, problems = read_bytes(tmp_path, b"no\n" * 500 + line("a"))
    assert problems.bad == 500
    assert len(problems.first) == 20


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            for i in range(rows):
                file.write(json.dumps(request(f"{i} " + "word " * 2000)).encode() + b"\n")
        tracemalloc.start()
        assert sum(1 for _ in read([path])) == rows
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(50)
    assert peak(2000) < peak(200) + (1 << 20)


def test_nothing_is_counted_that_was_not_measured(tmp_path: Path) -> None:
    rows = [
        request("none"),
        request("odd", usage={"prompt_tokens": "12", "prompt_tokens_details": None}),
        request("negative", usage={"prompt_tokens": -1, "cached_tokens": True}),
        request("some", usage={"prompt_tokens": 12.0, "prompt_tokens_details": {}}),
    ]
    path = tmp_path / "log"
    path.write_text("\n".join(map(json.dumps, rows)))
    usages = [c.usage for c in read([path])]
    assert [u.cached for u in usages] == [None] * 4
    assert [u.prompt for u in usages] == [None, None, None, 12]
