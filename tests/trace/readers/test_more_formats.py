"""Formats that are no single request and reply: batches, conversations, hash traces, chains of ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.trace.call import Usage
from agentkv.trace.readers import LogError, Problems, read


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def turn(*texts: str) -> list[dict[str, str]]:
    return [
        {"from": "human" if i % 2 == 0 else "gpt", "value": text} for i, text in enumerate(texts)
    ]


def asked(calls: Any) -> list[str]:
    return ["|".join(p.text for p in c.parts) for c in calls]


def test_a_batch_and_its_replies_in_any_order(tmp_path: Path) -> None:
    def request(name: str) -> Any:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": f"Q {name}"}]}
        return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}

    def reply(name: str, cached: int) -> Any:
        body = {
            "choices": [{"message": {"role": "assistant", "content": f"A {name}"}}],
            "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": cached}},
        }
        return {"custom_id": name, "response": {"status_code": 200, "body": body}, "error": None}

    failed = {"custom_id": "c", "response": {"status_code": 429, "body": {"error": {
        "message": "too many"}}}}  # fmt: skip
    sent = write(tmp_path / "in.jsonl", request("a"), request("b"), request("c"), request("d"))
    came = write(tmp_path / "out.jsonl", reply("b", 8), failed, reply("a", 0))
    for order in ([sent, came], [came, sent]):
        problems = Problems()
        calls = {c.id: c for c in read(order, problems=problems)}
        assert list(calls) == ["a", "b", "c", "d"]
        assert [calls[k].usage.cached for k in "abcd"] == [0, 8, None, None]
        assert calls["c"].error == "too many"
        assert calls["b"].answer[0].text == "A b"
        assert problems.bad == 0
        assert problems.skipped == {"reply of a batch": 3}


def test_replies_of_a_batch_without_their_requests(tmp_path: Path) -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "A"}}]}
    row = {"custom_id": "a", "response": {"status_code": 200, "body": body}}
    problems = Problems()
    assert list(read([write(tmp_path / "out.jsonl", row)], problems=problems)) == []
    assert dict(problems.counts) == {"reply only": 1}
    assert "1 replies of a batch have no request in these logs" in problems.first[0].why


def test_a_batch_of_anthropic(tmp_path: Path) -> None:
    params = {"model": "claude-haiku-4-5", "max_tokens": 5, "system": "S",
              "messages": [{"role": "user", "content": "Q"}]}  # fmt: skip
    message = {"type": "message", "content": [{"type": "text", "text": "A"}],
               "usage": {"input_tokens": 2, "cache_read_input_tokens": 3}}  # fmt: skip
    sent = write(tmp_path / "in.jsonl", {"custom_id": "x", "params": params})
    came = write(
        tmp_path / "out.jsonl",
        {"custom_id": "x", "result": {"type": "succeeded", "message": message}},
    )
    (call,) = read([sent, came])
    assert call.provider == "anthropic"
    assert call.usage == Usage(5, 3, None, None)
    assert call.answer[0].text == "A"


def test_sharegpt_that_ends_with_the_human_is_one_request(tmp_path: Path) -> None:
    log = write(
        tmp_path / "a.jsonl",
        {"id": "s", "conversations": turn("q1")},
        {"id": "s", "conversations": turn("q1", "a1", "q2")},
    )
    calls = list(read([log]))
    assert asked(calls) == ["q1", "q1|a1|q2"]
    assert {c.session for c in calls} == {"s"}
    assert [p.kind for p in calls[1].parts] == ["history", "history", "question"]


def test_sharegpt_whole_conversations_are_their_calls(tmp_path: Path) -> None:
    log = write(
        tmp_path / "a.jsonl",
        {"id": "s1", "system": "Be kind.", "conversations": turn("q1", "a1", "q2", "a2")},
        {"id": "s2", "conversations": turn("p1", "b1")},
    )
    calls = list(read([log]))
    assert asked(calls) == ["Be kind.|q1", "Be kind.|q1|a1|q2", "p1"]
    assert [c.answer[0].text for c in calls] == ["a1", "a2", "b1"]
    assert [c.session for c in calls] == ["s1", "s1", "s2"]


def test_sharegpt_growing_conversations_count_each_call_once(tmp_path: Path) -> None:
    log = write(
        tmp_path / "a.jsonl",
        {"id": "s", "conversations": turn("q1", "a1")},
        {"id": "s", "conversations": turn("q1", "a1", "q2", "a2")},
        {"id": "s", "conversations": turn("q1", "a1", "q2", "a2", "q3", "a3")},
    )
    assert asked(read([log])) == ["q1", "q1|a1|q2", "q1|a1|q2|a2|q3"]


def test_a_plain_conversation_is_a_call_and_its_answer(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    log = write(
        tmp_path / "a.jsonl",
        {"messages": messages},
        messages,
        {"messages": messages, "max_tokens": 3},  # as it was sent: the answer was begun for it
    )
    plain, array, prefilled = read([log])
    for call in (plain, array):
        assert asked([call]) == ["q"]
        assert call.answer[0].text == "a"
        assert call.usage == Usage()
    assert asked([prefilled]) == ["q|a"]


def test_transcripts(traces: Path) -> None:
    calls = list(read([traces / "agent" / "tau_airline_gpt4o.sessions.jsonl.gz"],
                      format="transcript"))  # fmt: skip
    assert len(calls) == 1229
    assert len({c.session for c in calls}) == 100
    swe = list(read([traces / "coding" / "coding_sweagent.jsonl.gz"]))
    assert len(swe) == 230
    assert all(c.parts[-1].role != "assistant" for c in swe)


def test_mooncake(traces: Path) -> None:
    problems = Problems()
    seen: set[tuple[int, ...]] = set()
    hit = total = 0
    for call in read([traces / "hash" / "mooncake_conversation_trace.jsonl.gz"], problems=problems):
        assert call.blocks is not None
        assert call.block_size == 512
        ids = call.blocks.tolist()
        total += len(ids)
        run = True
        for i in range(1, len(ids) + 1):
            key = (i, ids[i - 1], ids[i - 2] if i > 1 else -1)
            run = run and key in seen
            hit += run
            seen.add(key)
    assert problems.calls == 12031
    assert problems.bad == 0
    assert hit / total == pytest.approx(0.366, abs=5e-4)


def test_the_size_of_a_block_shows_in_the_length(tmp_path: Path) -> None:
    rows = [
        {"hash_ids": [1, 2, 3], "input_length": 1100},
        {"hash_ids": [1, 2, 3], "input_length": 40},
        {"hash_ids": [1, 2, 3], "input_length": 40, "block_size": 20},
        {"hash_ids": [1, 2, 3], "input_length": 7},
    ]
    calls = list(read([write(tmp_path / "a.jsonl", *rows)]))
    assert [c.block_size for c in calls] == [512, 16, 20, 512]


def test_weka(traces: Path) -> None:
    calls = list(read([traces / "hash" / "weka_claude_code_sessions.jsonl.gz"]))
    mains = [c for c in calls if c.session is not None and "/" not in c.session]
    assert (len(mains), len(calls) - len(mains)) == (2984, 147)
    assert len({c.session for c in mains}) == 51
    assert {c.block_size for c in calls} == {64}
    # Ids are local to a line: the calls of two lines must share nothing, those of one may.
    salts = {c.session.split("/")[0]: c.salt for c in calls if c.session}
    assert all(salts[s] == s for s in salts)
    subs = [c for c in calls if c.session == "trace_0004/agent_001"]
    assert len(subs) == 14
    assert subs[0].time == pytest.approx(440243.409)


def test_wide_hashes_stay_different(tmp_path: Path) -> None:
    wide = [2**40 + i * 2**33 for i in range(1000)]
    log = write(tmp_path / "a.jsonl", {"hash_ids": wide, "input_length": 512_000, "timestamp": 5})
    (call,) = read([log])
    assert call.blocks is not None
    assert len(set(call.blocks.tolist())) == 1000
    assert call.time == 0.005


def test_a_response_that_continues_another(tmp_path: Path) -> None:
    """`previous_response_id`: the provider has the history, and so must the prompt here."""

    def line(text: str, before: str | None, name: str, answer: str) -> Any:
        output = [{"type": "message", "role": "assistant",
                   "content": [{"type": "output_text", "text": answer}]}]  # fmt: skip
        request = {"model": "gpt-5", "instructions": "I", "input": text,
                   "previous_response_id": before}  # fmt: skip
        return {"request": request, "response": {"id": name, "output": output}}

    problems = Problems()
    log = write(
        tmp_path / "a.jsonl",
        line("q1", None, "resp_1", "a1"),
        line("q2", "resp_1", "resp_2", "a2"),
        line("q3", "resp_2", "resp_3", "a3"),
        line("qx", "resp_unknown", "resp_4", "ax"),
    )
    calls = list(read([log], problems=problems))
    assert asked(calls) == ["I|q1", "I|q1|a1|q2", "I|q1|a1|q2|a2|q3", "I|qx"]
    assert [p.name for p in calls[2].parts][:3] == ["system", "messages[0]", "messages[1]"]
    assert [p.kind for p in calls[2].parts].count("question") == 1
    assert problems.bad == 0
    assert problems.notes == {"history elsewhere": 1}
    assert problems.first_notes[0].line == 4


def test_a_named_format_that_does_not_exist() -> None:
    with pytest.raises(LogError, match="no log format is called csv; there are agentkv"):
        read([], format="csv")
