"""The reader of recorded sessions: each shape of line, and the real files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.demo.traces import TraceError, read_session, read_traces

TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}


def say(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def test_session_calls_stand_before_each_assistant_message() -> None:
    messages = [
        say("system", "S"),
        say("user", "1"),
        say("assistant", None, tool_calls=[{"id": "a"}]),
        say("tool", "r", tool_call_id="a"),
        say("assistant", "one"),
        say("user", "2"),
        say("assistant", "two"),
        say("user", "bye"),
    ]
    session = read_session({"session_id": "s", "messages": messages, "tools": [TOOL]})
    assert [call.turn for call in session.calls] == [1, 1, 2]
    requests = list(session.requests())
    assert [r[0] for r in requests] == [messages[:2], messages[:4], messages[:6]]
    assert all(r[1][0]["function"]["name"] == "look" for r in requests)


def test_two_answers_in_a_row_are_two_calls() -> None:
    messages = [say("user", "1"), say("assistant", "a"), say("assistant", "b")]
    session = read_session({"session_id": "s", "messages": messages})
    assert [r[0] for r in session.requests()] == [messages[:1], messages[:2]]


def test_a_line_without_a_session_is_one_request() -> None:
    messages = [say("user", "1"), say("assistant", "a"), say("user", "2")]
    assert [r[0] for r in read_session({"messages": messages}).requests()] == [messages]
    # With one, only the recorded call counts: what follows it was never asked.
    session = read_session({"session_id": "s", "messages": messages})
    assert [r[0] for r in session.requests()] == [messages[:1]]


def test_requests_are_each_whole_and_carry_documents() -> None:
    record = {
        "session_id": "s",
        "requests": [
            {"messages": [say("user", "1")], "documents": [{"id": "d", "text": "T"}]},
            {"messages": [say("user", "other")]},
        ],
    }
    session = read_session(record)
    assert [r[0] for r in session.requests()] == [[say("user", "1")], [say("user", "other")]]
    assert (session.calls[0].documents[0].id, session.calls[0].documents[0].text) == ("d", "T")


def test_open_ended_turns_and_a_tool_that_appears_late() -> None:
    late = {"name": "sort", "description": "", "parameters": {}}
    record = {
        "session_id": "s",
        "tools": [late, TOOL],
        "user_turns": [["one"], [], [say("user", "three")]],
        "missed_function": {"1": ["sort"]},
    }
    calls = read_session(record).calls
    names = [[t["function"]["name"] for t in call.tools] for call in calls]
    assert names == [["look"], ["look", "sort"], ["look", "sort"]]
    assert [call.fresh[0]["content"] for call in calls][::2] == ["one", "three"]
    assert "functions" in calls[1].fresh[0]["content"]
    assert all(call.recorded is None for call in calls)


def test_schema_types_are_json_schema_but_names_are_left_alone() -> None:
    function = {
        "name": "f",
        "parameters": {
            "type": "dict",
            "properties": {"type": {"type": "float"}, "dict": {"type": "dict", "properties": {}}},
        },
    }
    record = {"question": [[say("user", "q")]], "function": [function]}
    parameters = read_session(record).calls[0].tools[0]["function"]["parameters"]
    assert parameters == {
        "type": "object",
        "properties": {"type": {"type": "number"}, "dict": {"type": "object", "properties": {}}},
    }


def test_tools_by_reference_are_found_above_the_trace(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "t.json").write_text(json.dumps([TOOL]))
    folder = tmp_path / "agent"
    folder.mkdir()
    record = {"session_id": "s", "tools_ref": "tools/t.json", "user_turns": [["x"]]}
    path = folder / "trace.jsonl"
    path.write_text(json.dumps(record) + "\n\n")
    assert read_traces(path)[0].calls[0].tools[0]["function"]["name"] == "look"
    record["tools_ref"] = "tools/none.json"
    path.write_text(json.dumps(record))
    with pytest.raises(TraceError, match=r"trace.jsonl:1: the tools file tools/none.json"):
        read_traces(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "t.jsonl:2 is not JSON"),
        ("[1]", "t.jsonl:2 is not a JSON object"),
        ('{"x": 1}', "t.jsonl:2: none of messages"),
        ('{"messages": [3]}', "t.jsonl:2: a message is neither"),
        ('{"messages": [], "tools": [{}]}', "t.jsonl:2: a tool without a name"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"messages": [say("user", "fine")]}) + "\n" + line + "\n")
    with pytest.raises(TraceError) as caught:
        read_traces(path)
    assert message in str(caught.value)


def test_gzip_is_known_by_its_bytes_and_limit_counts_sessions(tmp_path: Path) -> None:
    path = tmp_path / "no-suffix"
    lines = "".join(json.dumps({"messages": [say("user", str(i))]}) + "\n" for i in range(5))
    path.write_bytes(gzip.compress(lines.encode()))
    assert len(read_traces(path)) == 5
    assert len(read_traces(path, limit=2)) == 2


@pytest.mark.parametrize(
    ("file", "sessions", "calls"),
    [
        ("agent/tau_airline_gpt4o.sessions.jsonl.gz", 100, 1229),
        ("agent/agent_bfcl_multi_turn_base.jsonl.gz", 60, 194),
        ("agent/agent_bfcl_multi_turn_miss_func.jsonl.gz", 60, 254),
        ("agent/BFCL_v4_live_multiple.first300.json.gz", 300, 300),
        ("coding/coding_sweagent.jsonl.gz", 22, 230),
        ("chat/mt_bench_question.jsonl.gz", 80, 160),
        ("rag/rag_mtragun.jsonl.gz", 507, 507),
    ],
)
def test_real_files(traces: Path, file: str, sessions: int, calls: int) -> None:
    found = read_traces(traces / file)
    assert (len(found), sum(len(s.calls) for s in found)) == (sessions, calls)
