"""`agentkv trace` and `agentkv explain` as a user meets them."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

Run = Callable[..., Any]
SCRIPT = Path(sys.executable).with_name("agentkv")

RULES = " ".join(
    f"Rule {i}: answer briefly, name the article that you used, and never promise a refund."
    for i in range(12)
)


def request(turn: int, *, clock: bool, session: str = "s-1") -> dict[str, Any]:
    head = f"It is 2026-09-21 14:02:{turn:02d}.\n" if clock else ""
    messages = [{"role": "system", "content": head + RULES}]
    for i in range(turn + 1):
        messages.append({"role": "user", "content": f"Where is the parcel number {i} of mine?"})
        if i < turn:
            messages.append({"role": "assistant", "content": f"Parcel {i} is on its way to you."})
    return {
        "id": f"call-{turn}",
        "model": "gpt-4o",
        "messages": messages,
        "timestamp": 1_790_000_000 + 60 * turn,
        "metadata": {"session_id": session},
    }


def write(path: Path, *, clock: bool, turns: int = 8) -> Path:
    lines = [json.dumps(request(i, clock=clock)) for i in range(turns)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good.jsonl", clock=False)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write(tmp_path / "bad.jsonl", clock=True)


def test_the_help_comes_at_once() -> None:
    best = 9.0
    for _ in range(5):
        start = time.perf_counter()
        done = subprocess.run([SCRIPT, "trace", "--help"], capture_output=True, check=True)
        best = min(best, time.perf_counter() - start)
    for name in (b"report", b"replay", b"diff", b"show", b"what-if", b"redact"):
        assert name in done.stdout
    # 150 ms on an idle machine; here other tests run beside it.
    assert best < 0.4


def test_trace_needs_no_model_runtime_and_no_langchain(bad: Path) -> None:
    code = (
        "import sys; sys.argv = ['agentkv', 'trace', 'report', sys.argv[1]]\n"
        "from agentkv.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "loaded = {m.split('.')[0] for m in sys.modules}\n"
        "assert not loaded & {'torch', 'transformers', 'langchain_core', 'langchain'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code, bad], check=True, capture_output=True)


def test_a_report_names_the_clock_and_where_it_is(agentkv: Run, bad: Path) -> None:
    ran = agentkv("trace", "report", str(bad))
    assert ran.code == 0 and ran.err == ""
    assert "KV101 timestamp-in-prefix" in ran.out
    assert f"{bad}:2" in ran.out.replace("\n", "")
    assert "8 requests, 1 session" in ran.out


def test_a_healthy_log_is_silent(agentkv: Run, good: Path) -> None:
    ran = agentkv("trace", "report", str(good))
    assert ran.code == 0
    assert "Nothing was lost" in ran.out and "KV" not in ran.out


def test_json_has_the_shape_that_others_rely_on(agentkv: Run, bad: Path, tmp_path: Path) -> None:
    ran = agentkv("trace", "report", "--json", str(bad))
    seen = json.loads(ran.out)
    assert ran.code == 0 and ran.err == ""
    assert seen["schema"] == 1 and seen["requests"] == 8 and seen["sessions"] == 1
    rate = seen["hit_rate"]
    assert 0 <= rate["now"] < rate["fixed"] <= rate["ceiling"] <= 1
    cause = seen["causes"][0]
    assert cause["rule"] == "KV101" and cause["reason"] == "text_changed"
    assert cause["tokens_lost"] > 0 and cause["first"]["line"] == 2
    file = tmp_path / "out.json"
    assert agentkv("trace", "report", "--json", "-o", str(file), str(bad)).out == ""
    assert json.loads(file.read_text()) == seen


def test_the_page_is_written_and_says_where(agentkv: Run, bad: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ran = agentkv("trace", "report", str(bad), "--html", str(file))
    assert ran.code == 0 and str(file) in ran.err
    assert file.read_text().startswith("<!doctype html>")
    out = agentkv("trace", "report", str(bad), "--html", "-").out
    assert out.startswith("<!doctype html>") and "KV101" in out


def test_redact_prints_no_text_of_a_prompt(agentkv: Run, bad: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    text = agentkv("trace", "report", str(bad), "--redact", "--html", str(file))
    shown = text.out + file.read_text()
    shown += agentkv("trace", "report", str(bad), "--redact", "--json").out
    shown += agentkv("trace", "show", str(bad), "--redact").out
    shown += agentkv("trace", "show", str(bad), "--redact", "--json").out
    shown += agentkv("trace", "diff", str(bad), str(bad), "--redact", "--json").out
    shown += agentkv("explain", f"{bad}:1", f"{bad}:2", "--redact", "--json").out
    for word in ("parcel", "refund", "14:02", "article"):
        assert word not in shown.lower()
    assert "KV101" in shown


@pytest.mark.parametrize("rate", ["0.99", "99%", "99"])
def test_fail_under(agentkv: Run, bad: Path, rate: str) -> None:
    ran = agentkv("trace", "report", str(bad), "--fail-under", rate)
    assert ran.code == 1 and "asked for" in ran.err
    assert agentkv("trace", "report", str(bad), "--fail-under", "0.0001").code == 0


def test_a_damaged_log_is_reported_and_its_bad_lines_are_named(
    agentkv: Run, bad: Path, tmp_path: Path
) -> None:
    file = tmp_path / "damaged.jsonl"
    lines = bad.read_text().splitlines()
    lines[3] = lines[3][:40]
    file.write_text("\n".join([*lines, '{"colour": "blue"}']) + "\n")
    ran = agentkv("trace", "report", str(file))
    assert ran.code == 1
    assert "7 requests" in ran.out and "KV101" in ran.out
    assert f"{file}:4" in ran.err
    seen = json.loads(agentkv("trace", "report", "--json", str(file)).out)
    assert sum(seen["problems"]["counts"].values()) == 2
    assert seen["measured"]["requests"] == 0 and seen["measured"]["hit_rate"] is None


def test_an_empty_log_and_one_that_is_cut_off(agentkv: Run, bad: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    ran = agentkv("trace", "report", str(empty))
    assert ran.code == 1 and "0 requests" in ran.out and "empty" in ran.err
    cut = tmp_path / "cut.jsonl.gz"
    packed = gzip.compress(bad.read_bytes())
    cut.write_bytes(packed[: len(packed) * 3 // 4])
    ran = agentkv("trace", "report", str(cut))
    assert ran.code == 1 and "cut off" in ran.err
    assert "0 requests" not in ran.out


def test_standard_input_can_be_read_more_than_once(
    agentkv: Run, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(bad.read_bytes())

    monkeypatch.setattr(sys, "stdin", Stdin)
    seen = json.loads(agentkv("trace", "report", "--json", "-").out)
    assert seen["requests"] == 8 and seen["hit_rate"]["fixed"] > seen["hit_rate"]["now"]
    assert seen["causes"][0]["first"]["file"] == "<stdin>"


def test_one_session_only(agentkv: Run, tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    calls = [request(i, clock=s == "b", session=s) for i in range(5) for s in ("a", "b")]
    file.write_text("".join(json.dumps(c) + "\n" for c in calls))
    seen = json.loads(agentkv("trace", "report", "--json", "--session", "a", str(file)).out)
    assert seen["requests"] == 5 and seen["causes"] == []
    ran = agentkv("trace", "report", "--session", "zz", str(file))
    assert ran.code == 2 and "zz" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere.jsonl"], "nowhere.jsonl"),
        (["report", "LOG", "--target", "mars"], "mars"),
        (["report", "LOG", "--pool", "8GiB"], "--model"),
        (["report", "LOG", "--pool", "eight", "--model", "qwen2.5-7b"], "512MiB"),
        (["report", "LOG", "--pool", "8GiB", "--pool-tokens", "8", "--model", "x"], "not both"),
        (["report", "LOG", "--target", "openai", "--pool-tokens", "8"], "openai"),
        (["report", "LOG", "--fail-under", "often"], "often"),
        (["report", "LOG", "--format", "mars"], "mars"),
        (["report", "LOG", "--tokenizer", "nowhere.json"], "nowhere.json"),
        (["report", "LOG", "--html", "nowhere/page.html"], "nowhere/page.html"),
        (["replay", "LOG", "--target", "anthropic"], "anthropic"),
        (["replay", "LOG", "--policy", "mars"], "mars"),
        (["what-if", "LOG", "--fix", "mars"], "mars"),
        (["what-if", "LOG", "-o", "LOG"], "the log itself"),
        (["redact", "LOG", "-o", "LOG"], "the log itself"),
        (["redact", "LOG", "--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY"),
        (["show", "LOG", "--session", "zz"], "zz"),
    ],
)
def test_wrong_usage_is_one_sentence(
    agentkv: Run, bad: Path, arguments: list[str], said: str
) -> None:
    ran = agentkv("trace", *(str(bad) if a == "LOG" else a for a in arguments))
    assert ran.code == 2
    assert said in ran.err and ran.err.startswith("error: ") and ran.err.count("\n") == 1
    assert bad.read_text().count("\n") == 8


def test_replay_shows_the_curve(agentkv: Run, good: Path) -> None:
    seen = json.loads(agentkv("trace", "replay", "--share", "10%,50%", "--json", str(good)).out)
    assert {p["policy"] for p in seen["points"]} == {"any", "lru", "hot"}
    assert all(p["hit_rate"] <= seen["ceiling"] + 1e-9 for p in seen["points"])
    text = agentkv("trace", "replay", str(good)).out
    assert "unlimited" in text and "hot" in text


def test_a_pool_limits_what_is_reused(agentkv: Run, good: Path) -> None:
    free = json.loads(agentkv("trace", "report", "--json", str(good)).out)
    small = json.loads(agentkv("trace", "report", "--json", "--pool-tokens", "64", str(good)).out)
    assert small["hit_rate"]["now"] < free["hit_rate"]["now"]
    assert "64 tokens" in small["cache"]


def test_diff_fails_when_the_second_log_is_worse(agentkv: Run, good: Path, bad: Path) -> None:
    worse = agentkv("trace", "diff", str(good), str(bad))
    assert worse.code == 1 and "KV101" in worse.out and "fell" in worse.out
    better = agentkv("trace", "diff", str(bad), str(good))
    assert better.code == 0 and "not worse" in better.out
    seen = json.loads(agentkv("trace", "diff", "--json", str(good), str(bad)).out)
    assert seen["schema"] == 1 and seen["worse"] is True and seen["tokens"] > 0


def test_show_goes_call_by_call(agentkv: Run, bad: Path) -> None:
    text = agentkv("trace", "show", str(bad)).out
    assert "session s-1" in text and text.count("KV101") == 7
    seen = json.loads(agentkv("trace", "show", "--json", "--session", "s-1", str(bad)).out)
    assert [s["line"] for s in seen["steps"]] == list(range(1, 9))


def test_what_if_writes_a_copy_and_never_the_log(agentkv: Run, bad: Path, tmp_path: Path) -> None:
    before = bad.read_bytes()
    file = tmp_path / "mended.jsonl"
    ran = agentkv("trace", "what-if", "--json", "-o", str(file), str(bad))
    seen = json.loads(ran.out)
    rates = {row["fix"]: row["hit_rate"] for row in seen["rows"]}
    assert rates["all"] > rates[None] and seen["ceiling"] >= rates["all"]
    assert bad.read_bytes() == before
    mended = json.loads(agentkv("trace", "report", "--json", "--no-fixed", str(file)).out)
    assert mended["hit_rate"]["now"] == pytest.approx(rates["all"], abs=0.02)
    assert mended["hit_rate"]["fixed"] is None
    assert agentkv("trace", "what-if", "-o", str(file), str(bad)).code == 2
    assert "all of these" in agentkv("trace", "what-if", str(bad)).out


def test_a_redacted_copy_gives_the_same_report(
    agentkv: Run, bad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "redacted.jsonl"
    assert agentkv("trace", "redact", str(bad), "-o", str(file)).code == 0
    assert "parcel" not in file.read_text() and "refund" not in file.read_text()
    was = json.loads(agentkv("trace", "report", "--json", str(bad)).out)
    now = json.loads(agentkv("trace", "report", "--json", str(file)).out)
    assert now["hit_rate"] == was["hit_rate"] and now["prompt_tokens"] == was["prompt_tokens"]
    assert [c["rule"] for c in now["causes"]] == [c["rule"] for c in was["causes"]]
    monkeypatch.setenv("TRACE_KEY", "k" * 32)
    one, two = (
        agentkv("trace", "redact", str(bad), "--key-env", "TRACE_KEY").out for _ in range(2)
    )
    assert one == two != file.read_text()


def test_explain_two_requests(agentkv: Run, bad: Path, good: Path, tmp_path: Path) -> None:
    ran = agentkv("explain", f"{bad}:1", f"{bad}:2")
    assert ran.code == 1
    assert "KV101 timestamp-in-prefix" in ran.out and "14:02:01" in ran.out
    seen = json.loads(agentkv("explain", "--json", f"{bad}:1", f"{bad}:2").out)
    assert seen["reason"] == "text_changed" and seen["rule"] == "KV101" and seen["schema"] == 1
    for name, turn in (("a", 0), ("b", 1)):
        (tmp_path / f"{name}.json").write_text(json.dumps(request(turn, clock=False), indent=1))
    ran = agentkv("explain", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert ran.code == 0 and "Healthy" in ran.out


def test_explain_by_id_in_a_log(agentkv: Run, bad: Path) -> None:
    ran = agentkv("explain", "--request-id", "call-3", str(bad))
    assert ran.code == 1 and "KV101" in ran.out
    ran = agentkv("explain", "--request-id", "call-99", str(bad))
    assert ran.code == 2 and "call-99" in ran.err


@pytest.mark.parametrize(
    "arguments", [[], ["one.json"], ["a.json", "b.json", "c.json"], ["nowhere.json", "b.json"]]
)
def test_explain_says_what_it_needs(agentkv: Run, arguments: list[str]) -> None:
    ran = agentkv("explain", *arguments)
    assert ran.code == 2 and ran.err.startswith("error: ")


@pytest.fixture
def server() -> Iterator[str]:
    """A stand-in that answers as `agentkv serve` does."""
    verdict = {
        "schema": 1,
        "request_id": "req-7",
        "session": "s-1",
        "prompt_tokens": 1841,
        "cached_tokens": 12,
        "reusable_tokens": 12,
        "resident_tokens": 12,
        "miss": {
            "token": 12,
            "reason": "text_changed",
            "segment": "messages[0]",
            "was": "14:02:11 Be kind",
            "now": "14:02:19 Be kind",
            "detail": None,
        },
        "segments": [{"name": "messages[0]", "tokens": 1800, "cached": 12}],
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/agentkv/explain/req-7"
            allowed = self.headers.get("Authorization") == "Bearer secret"
            self.send_response(401 if not allowed else 200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(verdict if known and allowed else {}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}/v1"
    http.shutdown()
    http.server_close()


def test_explain_asks_a_server(agentkv: Run, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKV_API_KEY", "secret")
    ran = agentkv("explain", "--request-id", "req-7", "--url", server)
    assert ran.code == 1
    assert "text changed" in ran.out and "14:02:19" in ran.out and "messages[0]" in ran.out
    hidden = agentkv("explain", "--request-id", "req-7", "--url", server, "--redact", "--json")
    assert "kind" not in hidden.out and json.loads(hidden.out)["miss"]["token"] == 12
    unknown = agentkv("explain", "--request-id", "req-8", "--url", server)
    assert unknown.code == 2 and "req-8" in unknown.err
    monkeypatch.delenv("AGENTKV_API_KEY")
    refused = agentkv("explain", "--request-id", "req-7", "--url", server)
    assert refused.code == 2 and "AGENTKV_API_KEY" in refused.err


def test_explain_without_a_server_is_the_environments_fault(agentkv: Run) -> None:
    ran = agentkv("explain", "--request-id", "req-7", "--url", "http://127.0.0.1:9")
    assert ran.code == 3 and "agentkv serve" in ran.err


def test_colour_follows_the_environment(bad: Path) -> None:
    def run(**more: str) -> str:
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
        done = subprocess.run(
            [SCRIPT, "trace", "report", bad],
            env={**env, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "\x1b" not in run()
    assert "\x1b[" in run(FORCE_COLOR="1")
    assert "\x1b" not in run(NO_COLOR="1", FORCE_COLOR="1")
    narrow = run(COLUMNS="50")
    assert max(map(len, narrow.splitlines())) <= 50
    ascii_only = run(PYTHONIOENCODING="ascii")
    assert ascii_only.isascii() and "KV101" in ascii_only
