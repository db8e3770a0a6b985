"""`CacheReportHandler(record=...)`: a line for each call, of any model, and what is read of it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from agentkv import static, volatile
from agentkv.engine.recording import Digests, span_rows
from agentkv.langchain import AgentKV, ChatAgentKV
from agentkv.langchain.handler import CacheReportHandler, cache_report
from agentkv.langchain.messages import to_dicts
from agentkv.langchain.record_parts import estimated
from agentkv.trace.analyse import analyse
from agentkv.trace.call import Call
from agentkv.trace.readers import Problems, read
from agentkv.trace.render import Renderer
from tests.langchain.test_handler import Foreign
from tests.trace.causes.logs import Shape, log

if TYPE_CHECKING:
    from agentkv.engine import Engine

SECRET = "the sentinel is in here"
RULES = "You help the people who call with what they have bought. " * 6 + SECRET


@tool
def weather(city: str) -> str:
    """What it is like outside."""
    return city


@pytest.fixture
def llm(shared: Engine) -> ChatAgentKV:
    return ChatAgentKV(model="tiny", engine=shared, max_tokens=4, temperature=0)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def calls(path: Path) -> list[Call]:
    problems = Problems()
    found = list(read([path], problems=problems))
    assert problems.bad == 0, problems.first
    return found


def test_a_call_of_our_model(llm: ChatAgentKV, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    config: Any = {"metadata": {"thread_id": "t-1", "user_id": "u-9"}}
    with cache_report(record=path) as booked:
        llm.bind_tools([weather]).invoke(
            [SystemMessage(RULES), HumanMessage(f"Hello, {SECRET}")], config
        )
    (line,) = lines(path)
    (row,) = booked.rows
    assert row.report is not None
    assert SECRET not in path.read_text()
    assert line["source"] == "langchain" and line["provider"] == "agentkv"
    assert (line["session"], line["user"], line["model"]) == ("t-1", "u-9", "tiny")
    assert line["prompt_tokens"] == row.report.prompt_tokens
    assert line["cached_tokens"] == 0 and line["completion_tokens"] == 4
    assert line["miss"]["reason"] == row.report.reason and "was" not in line["miss"]
    assert line["tokenizer"] == "estimate" and line["ttft_ms"] > 0
    assert [(r[0], r[1]) for r in line["spans"]] == [
        ("tools", "tools"),
        ("messages[0]", "instructions"),
        ("messages[1]", "question"),
    ]
    assert line["spans"][0][6][0][0] == "weather"


def test_what_is_recorded_is_what_was_sent(llm: ChatAgentKV, tmp_path: Path) -> None:
    """A clock that the layout has moved behind the question is not in front of the rules."""
    path = tmp_path / "run.jsonl"
    with cache_report(record=path):
        for n in range(2):
            clock = volatile(f"It is 12:0{n}. ", name="clock")
            llm.invoke([SystemMessage([clock, static(RULES)]), HumanMessage("Hello")])
    first, second = lines(path)
    assert first["spans"][0][0] != "clock"
    assert "clock" in [r[0] for r in first["spans"]]
    assert first["spans"][0] == second["spans"][0]
    one, two = calls(path)
    a, b = (Renderer().render(c).prompt.token_ids for c in (one, two))
    assert (a[:60] == b[:60]).all()


def test_with_text_it_is_a_request_like_any_other(llm: ChatAgentKV, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with cache_report(record=path, record_text=True):
        answer = llm.invoke([SystemMessage(RULES), HumanMessage("Hello")])
    (call,) = calls(path)
    assert [p.text for p in call.parts] == [RULES, "Hello"]
    assert [p.text for p in call.answer] == [answer.text]
    assert call.usage.cached == 0


def test_an_agent_loop_grows_without_text(tmp_path: Path) -> None:
    """Another provider's model: tool calls and results; each prompt begins with the last one and
    its answer, and the replay sees that from digests alone."""
    path = tmp_path / "run.jsonl"
    handler = CacheReportHandler(record=path)
    model = Scripted()
    messages: list[BaseMessage] = [SystemMessage(RULES), HumanMessage("What is it like in Oslo?")]
    for n in range(3):
        answer = model.invoke(messages, {"callbacks": [handler]})
        messages += [answer, ToolMessage(f"result {n} of a search", tool_call_id=f"c{n}")]
    handler.close()
    found = calls(path)
    renderer = Renderer()
    for old, new in pairwise(found):
        before, after = renderer.render(old), renderer.render(new)
        said = len(before.full) - 1  # the closing token is the template's
        assert (after.prompt.token_ids[:said] == before.full[:said]).all()
    assert [c.usage.cached for c in found] == [None] * 3
    assert [c.usage.prompt for c in found] == [100] * 3


class Scripted(Foreign):
    """Calls a tool again and again; says nothing of its cache."""

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        n = sum(m.type == "tool" for m in messages)
        message = AIMessage(
            "Let me look.",
            tool_calls=[{"name": "find", "args": {"what": f"thing {n}"}, "id": f"c{n}"}],
            usage_metadata={"input_tokens": 100, "output_tokens": 9, "total_tokens": 109},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_what_others_say_of_their_cache(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with cache_report(record=path):
        Foreign(details={"cache_read": 60, "cache_creation": 30}).invoke("hi")
        Foreign().invoke("hi", tool_choice="auto")
        with pytest.raises(RuntimeError):
            Foreign(fails=True).invoke("hi")
    told, silent, failed = lines(path)
    assert (told["prompt_tokens"], told["cached_tokens"], told["written_tokens"]) == (100, 60, 30)
    assert (
        silent["cached_tokens"] is None and silent["page_size"] if "page_size" in silent else True
    )
    assert failed["error"] == "RuntimeError" and failed["prompt_tokens"] is None
    assert "secret" not in path.read_text()
    assert [c.error for c in calls(path)] == [None, None, "RuntimeError"]


def test_settings_of_others_are_short_names_or_digests(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    handler = CacheReportHandler(record=path)
    run = uuid4()
    handler.on_chat_model_start(
        {},
        [[HumanMessage("hi")]],
        run_id=run,
        invocation_params={
            "model": "gpt-x",
            "tool_choice": "auto",
            "prompt_cache_key": f"{SECRET} of a tenant",
            "response_format": {"schema": SECRET},
            "temperature": 0.5,
        },
    )
    handler.on_llm_error(ValueError(SECRET), run_id=run)
    handler.close()
    (line,) = lines(path)
    assert set(line["settings"]) == {"tool_choice", "prompt_cache_key", "response_format"}
    assert line["settings"]["tool_choice"] == "auto" and line["model"] == "gpt-x"
    assert SECRET not in path.read_text()


def test_images_are_parts_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    def show(data: str) -> list[BaseMessage]:
        url = {"url": f"data:image/png;base64,{data}"}
        image = {"type": "image_url", "image_url": url}
        return [HumanMessage([{"type": "text", "text": "What is this?"}, image])]

    with cache_report(record=path):
        for data in ("AAAA", "AAAA", "BBBB"):
            Foreign().invoke(show(data))
    one, two, three = lines(path)
    assert [r[0] for r in one["spans"]] == ["messages[0]", "messages[0]#2"]
    assert one["spans"] == two["spans"]
    assert one["spans"][0] == three["spans"][0] and one["spans"][1] != three["spans"][1]


def test_one_line_a_call_however_it_is_made(llm: ChatAgentKV, tmp_path: Path) -> None:
    path, inner = tmp_path / "outer.jsonl", tmp_path / "inner.jsonl"
    cache = InMemoryCache()
    cached = llm.model_copy(update={"cache": cache})
    with cache_report(record=path) as outer:
        llm.invoke("Hello there")
        with cache_report(record=inner):
            list(llm.stream("Hello there"))
            asyncio.run(llm.ainvoke("Hello there"))
        cached.invoke("Cached")
        cached.invoke("Cached")  # LangChain answers: no call, no line
        llm.batch(["One", "Two"])
    assert outer.totals.response_cache == 1
    assert len(lines(path)) == 6 and len(lines(inner)) == 2
    ids = [line["id"] for line in lines(path)]
    assert len(set(ids)) == 6 and {line["id"] for line in lines(inner)} < set(ids)


def test_a_text_model(shared: Engine, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with cache_report(record=path, record_text=True):
        AgentKV(model="tiny", engine=shared, max_tokens=2).invoke("Once upon a time")
    (line,) = lines(path)
    assert [r[:2] for r in line["spans"]] == [["prompt", "context"]]
    assert line["text"]["prompt"] == "Once upon a time"
    (call,) = calls(path)
    assert call.usage.prompt == line["prompt_tokens"]


def test_without_a_file_nothing_is_kept(llm: ChatAgentKV, tmp_path: Path) -> None:
    handler = CacheReportHandler()
    llm.invoke("hi", {"callbacks": [handler]})
    handler.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="record_text needs a file"):
        CacheReportHandler(record_text=True)
    with pytest.raises(OSError, match="nowhere"):
        CacheReportHandler(record=tmp_path / "nowhere" / "run.jsonl")


def test_a_recording_that_fails_breaks_no_call(
    llm: ChatAgentKV, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr("agentkv.langchain.handler.line_of", broken)
    with cache_report(record=tmp_path / "run.jsonl") as booked:
        llm.invoke("hi")
    assert booked.totals.calls == 1 and booked._file is not None and booked._file.lost == 1


def test_the_engine_and_the_handler_give_a_message_one_digest(
    shared: Engine, tmp_path: Path
) -> None:
    """The handler's digests are those of the renderer, for marks, calls and plain text."""
    messages = [
        SystemMessage([static(RULES, name="rules"), volatile("It is 12:01.", name="clock")]),
        HumanMessage("Hello"),
        AIMessage("Yes?", tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "c"}]),
        ToolMessage("rain", tool_call_id="c"),
        HumanMessage("And now?"),
    ]
    path = tmp_path / "run.jsonl"
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=1, layout="off")
    with cache_report(record=path):
        llm.invoke(messages)
    rendered = shared.render(to_dicts(messages))
    (line,) = lines(path)
    theirs = {s.name: s.digest[:16] for s in rendered.spans if s.kind != "template"}
    assert {r[0]: r[5] for r in line["spans"]} == theirs


@pytest.mark.parametrize(
    ("kind", "segment"),
    [
        ("clock", "messages[0]"),
        ("name", "messages[0]"),
        ("tool_order", "tools"),
        ("sliding_window", "messages"),
        ("agent", None),
        ("chat", None),
        ("single", None),
    ],
)
def test_digests_alone_give_rates_and_where_they_were_lost(
    tmp_path: Path, kind: str, segment: str | None
) -> None:
    """The same traffic as a log with its text and as a recording without it."""
    texts, bare = tmp_path / "text.jsonl", tmp_path / "bare.jsonl"
    with texts.open("w") as a, bare.open("w") as b:
        for n, line in enumerate(log(kind, Shape())):
            body = line.get("request", line)
            ids, spans, tools = estimated(body)
            row = {
                "agentkv": 1,
                "time": n,
                "session": line.get("session_id"),
                "model": body["model"],
                "provider": "openai",
                "spans": span_rows(ids, spans, Digests(b""), tools),
            }
            a.write(json.dumps(line) + "\n")
            b.write(json.dumps(row) + "\n")
    full, less = (analyse(read([path]), fixed=False) for path in (texts, bare))
    assert less.requests == full.requests == 24
    assert less.sessions == full.sessions
    assert abs(less.prompt_tokens - full.prompt_tokens) < 0.01 * full.prompt_tokens
    assert abs(less.rates.now - full.rates.now) < 0.03
    assert full.rates.ceiling - 0.1 < less.rates.ceiling <= full.rates.ceiling + 0.01
    if segment is None:
        assert less.causes == ()
    else:
        assert less.causes[0].segment == segment
        assert less.causes[0].reason == full.causes[0].reason
