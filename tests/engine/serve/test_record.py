"""`--record`: what a server writes of its calls, and what `agentkv trace` reads of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.serve.config import ServeConfig
from agentkv.engine.serve.record import Recorder
from agentkv.engine.serve.run import Unavailable, open_recording
from agentkv.trace.call import Call
from agentkv.trace.readers import Problems, read
from agentkv.trace.render import Renderer

if TYPE_CHECKING:
    from agentkv.engine import Engine
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"
SECRET = "the sentinel is in here"
SYSTEM = "You answer the questions of the people who call. " * 8 + SECRET
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": f"What it is like outside. {SECRET}",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}},
    },
}


@pytest.fixture
def live(
    shared: Engine, serve: Callable[..., Live], tmp_path: Path
) -> Iterator[Callable[..., Recorded]]:
    made: list[Recorded] = []
    server = serve(shared, api_keys=())

    def start(**settings: Any) -> Recorded:
        path = tmp_path / f"run{len(made)}.jsonl"
        server.service.recorder = Recorder(path, key=b"", **settings)
        made.append(Recorded(server, path))
        return made[-1]

    yield start
    for one in made:
        one.stop()


class Recorded:
    """A server that records, and what it wrote."""

    def __init__(self, live: Live, path: Path) -> None:
        self.live, self.path = live, path

    def chat(self, *messages: dict[str, Any], session: str | None = "s", **more: Any) -> Any:
        body = {"messages": list(messages), "max_tokens": 4, "temperature": 0, **more}
        if session is not None:
            body["agentkv"] = {"session": session}
        response = self.live.post(CHAT, body)
        assert response.status_code == 200, response.text
        return response.json()

    def stop(self) -> None:
        recorder = self.live.service.recorder
        if recorder is not None:
            recorder.close()
            assert recorder.file.lost == 0

    def lines(self) -> list[dict[str, Any]]:
        self.stop()
        return [json.loads(x) for x in self.path.read_text(encoding="utf-8").splitlines()]

    def calls(self) -> list[Call]:
        self.stop()
        problems = Problems()
        calls = list(read([self.path], problems=problems))
        assert problems.bad == 0, problems.first
        return calls


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def test_a_call_without_its_text(live: Callable[..., Recorded]) -> None:
    run = live()
    body = [said("system", SYSTEM), said("user", f"hello, {SECRET}")]
    reply = run.chat(*body, tools=[TOOL], tool_choice="none", user="u-9", cache_salt="pepper")
    (line,) = run.lines()
    usage = reply["usage"]
    assert SECRET not in run.path.read_text() and "pepper" not in run.path.read_text()
    assert line["agentkv"] == 1 and line["source"] == "serve" and line["model"] == "tiny"
    assert (line["session"], line["user"], line["error"]) == ("s", "u-9", None)
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["cached_tokens"] == 0 and line["completion_tokens"] == 4
    assert line["written_tokens"] == usage["prompt_tokens_details"]["cache_write_tokens"]
    assert line["ttft_ms"] > 0 and line["finish_reason"] == "length"
    assert line["miss"] == {"token": 0, "reason": "first_call", "segment": "tools", "detail": None}
    names = [row[0] for row in line["spans"]]
    assert names[0] == "tools" and names[-1] == "generation_prompt" and "messages[1]" in names
    assert line["spans"][0][6][0][0] == "weather"
    assert line["spans"][-1][4] == usage["prompt_tokens"]
    assert "text" not in line and "reply" not in line


def test_with_its_text_it_is_a_request_like_any_other(live: Callable[..., Recorded]) -> None:
    run = live(with_text=True)
    reply = run.chat(said("system", SYSTEM), said("user", "hello"), cache_salt="pepper")
    (call,) = run.calls()
    assert "pepper" not in run.path.read_text()
    assert [(p.name, p.text) for p in call.parts] == [
        ("messages[0]", SYSTEM),
        ("messages[1]", "hello"),
    ]
    assert [p.text for p in call.answer] == [reply["choices"][0]["message"]["content"]]
    assert call.usage.prompt == reply["usage"]["prompt_tokens"]
    assert call.salt is not None


def test_a_conversation_replays_as_the_engine_ran_it(live: Callable[..., Recorded]) -> None:
    """Without a word of text: the replay of the digests reuses what the engine reused, to within
    one chunk for each place where two prompts part."""
    run = live()
    messages = [said("system", SYSTEM), said("user", "What is the first thing?")]
    for n in range(4):
        reply = run.chat(*messages)
        messages += [
            said("assistant", reply["choices"][0]["message"]["content"]),
            said("user", f"And what comes after the thing with the number {n}?"),
        ]
    calls = run.calls()
    renderer = Renderer()
    seen: list[Any] = []
    for call in calls:
        rendered = renderer.render(call)
        best = 0
        for ids in seen:
            n = min(len(ids), len(rendered.prompt.token_ids))
            same = ids[:n] == rendered.prompt.token_ids[:n]
            best = max(best, n if same.all() else int(same.argmin()))
        assert call.usage.cached is not None
        assert abs(best - call.usage.cached) <= 16, (best, call.usage)
        seen.append(rendered.full)
    assert calls[-1].usage.cached is not None and calls[-1].usage.cached > 400


def test_a_clock_at_the_head_is_found_without_text(live: Callable[..., Recorded]) -> None:
    """What stands behind the change is the same chunks again: it could have been reused."""
    run = live()
    for n in range(3):
        run.chat(said("system", f"It is 12:0{n}:1{n}. {SYSTEM}"), said("user", "hi"), session=None)
    first, second, _ = run.lines()
    chunks = [{i[1]: i[2] for i in line["spans"][0][6]} for line in (first, second)]
    common = sum(t for key, t in chunks[0].items() if key in chunks[1])
    total = sum(chunks[0].values())
    assert total - 90 < common < total
    assert [i[1] for i in first["spans"][0][6][:3]] != [i[1] for i in second["spans"][0][6][:3]]
    assert second["miss"]["reason"] == "text_changed"


def test_streams_and_choices_and_other_routes(live: Callable[..., Recorded]) -> None:
    run = live(with_text=True)
    body = {"messages": [said("user", "hi")], "max_tokens": 3, "temperature": 0}
    run.live.stream(CHAT, {**body, "n": 2})
    prompts: dict[str, Any] = {
        "prompt": ["one thing", "another"],
        "max_tokens": 4,
        "temperature": 0,
    }
    reply = run.live.post("/v1/completions", prompts).json()
    run.live.post(
        "/generate", {"input_ids": [5, 6, 7, 8], "sampling_params": {"max_new_tokens": 1}}
    )
    lines = run.lines()
    assert len(lines) == 4
    chat, one, two, raw = sorted(lines, key=lambda r: r["time"])
    assert chat["answer"] is None  # two choices: nobody knows which one is gone on with
    assert len(chat["reply"]["choices"]) == 2 and chat["completion_tokens"] == 6
    assert {one["text"]["prompt"], two["text"]["prompt"]} == {"one thing", "another"}
    assert one["id"] != two["id"] and one["id"][:-2] == two["id"][:-2]
    texts = {r["text"]["prompt"]: r["reply"]["choices"][0]["text"] for r in (one, two)}
    assert [texts[p] for p in prompts["prompt"]] == [c["text"] for c in reply["choices"]]
    assert raw["text"]["prompt"] == [5, 6, 7, 8]
    assert [row[:5] for row in raw["spans"]] == [["prompt", "context", None, 0, 4]]


def test_what_was_refused_is_no_measurement(live: Callable[..., Recorded]) -> None:
    run = live()
    response = run.live.post(
        CHAT, {"messages": [said("user", "the thing " * 900)], "max_tokens": 2000}
    )
    assert response.status_code == 400
    (line,) = run.lines()
    assert line["error"] == "ContextLengthExceeded"
    assert line["cached_tokens"] is None and line["miss"] is None
    (call,) = run.calls()
    assert call.error and call.usage.cached is None


def test_a_client_that_leaves(live: Callable[..., Recorded]) -> None:
    """Once its facts are known, a call counts; its prompt is in the cache."""
    run = live()
    body = {"messages": [said("user", "hi")], "max_tokens": 1500, "ignore_eos": True}
    sock = run.live.send(CHAT, {**body, "stream": True})
    assert b"200 OK" in sock.recv(4096)
    sock.close()
    run.live.until_idle()
    (line,) = run.lines()
    assert line["finish_reason"] == "abort" and line["error"] is None
    assert line["cached_tokens"] == 0 and line["prompt_tokens"] > 0


def test_the_same_calls_with_and_without_a_key(live: Callable[..., Recorded]) -> None:
    run = live()
    run.chat(said("system", SYSTEM), said("user", "hi"))
    (one,) = run.lines()
    run = live()
    run.live.service.recorder = Recorder(run.path, key=b"secret")
    run.chat(said("system", SYSTEM), said("user", "hi"))
    (two,) = run.lines()
    digests = [{i[1] for row in line["spans"] for i in row[6]} for line in (one, two)]
    assert not digests[0] & digests[1]
    assert not {r[5] for r in one["spans"]} & {r[5] for r in two["spans"]}


def test_a_recording_that_cannot_be_opened_stops_the_server(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"Cannot record to .*nowhere.*No such file"):
        open_recording(ServeConfig(record=str(tmp_path / "nowhere" / "run.jsonl")))
    assert open_recording(ServeConfig()) is None
    with pytest.raises(InvalidRequest, match="record_text"):
        ServeConfig(record_text=True)


def test_serve_records_until_it_is_stopped(tiny_llama_dir: Path, tmp_path: Path) -> None:
    """The command itself: a flag, a file of its owner's, and the last line before the end."""
    path = tmp_path / "run.jsonl"
    code = "from agentkv.cli.main import main; main()"
    flags = ["--port", "0", "--threads", "1", "--served-name", "tiny", "--record", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(tiny_llama_dir), *flags],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        told: list[str] = []
        for line in process.stderr:
            told.append(line)
            if "serving tiny on" in line:
                break
        assert any("recording to" in x and "digests, no text" in x for x in told), told
        url = told[-1].split()[-1]
        body = {"messages": [said("user", SECRET)], "max_tokens": 2}
        assert httpx.post(url + CHAT, json=body, timeout=30).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert "recorded 1 call in" in process.stderr.read()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(10)
        if process.stderr is not None:
            process.stderr.close()
    (record,) = [json.loads(x) for x in path.read_text().splitlines()]
    assert record["completion_tokens"] == 2 and SECRET not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
