"""agentkv's own recordings, with and without their text."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.trace.call import Call, Usage, Where
from agentkv.trace.readers import Problems, read_record
from agentkv.trace.readers.reading import Reading
from agentkv.trace.render import Renderer


def record(**more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "agentkv": 1,
        "source": "serve",
        "id": "req-7",
        "time": 1764484704.25,
        "session": "t-1",
        "user": None,
        "model": "qwen2.5-0.5b",
        "provider": "agentkv",
        "salt": "3f2a",
        "tokenizer": "exact",
        "prompt_tokens": 60,
        "cached_tokens": 30,
        "written_tokens": None,
        "completion_tokens": 5,
        "error": None,
        "ms": {"ttft": 68.2},
        "ttft_ms": None,
        "settings": {"tool_choice": "auto"},
        "spans": [
            ["tools", "tools", None, 0, 20, "d0" * 8, [["f", "a" * 12, 12], ["g", "b" * 12, 8]]],
            ["messages[0]", "instructions", "system", 20, 40, "d1" * 8, [[None, "c" * 12, 20]]],
            ["messages[1]", "question", "user", 40, 57, "d2" * 8,
             [[None, "e" * 12, 9], [None, "f" * 12, 8]]],
            ["generation_prompt", "template", "assistant", 57, 60, "d3" * 8, []],
        ],
        "answer": ["an" * 8, 5],
    }  # fmt: skip
    return {**made, **more}


def calls_of(*records: Any) -> list[Call]:
    problems = Problems()
    reading = Reading(problems)
    calls = [c for r in records for c in read_record(r, Where("log", 1), reading)]
    assert problems.bad == 0, problems.first
    return calls


def test_digests_become_redacted_pieces() -> None:
    (call,) = calls_of(record())
    assert [(p.name, p.kind, p.role) for p in call.parts] == [
        ("tools", "tools", None),
        ("messages[0]", "instructions", "system"),
        ("messages[1]", "question", "user"),
    ]
    pieces = [p for part in call.parts for p in part.pieces]
    assert all(p.redacted and not p.text for p in pieces)
    assert [(p.kind, p.name, p.key) for p in pieces[:2]] == [
        ("tool", "f", "a" * 12),
        ("tool", "g", "b" * 12),
    ]
    assert call.usage == Usage(60, 30, None, 5)
    assert (call.session, call.user, call.salt, call.provider) == ("t-1", None, "3f2a", "agentkv")
    assert call.settings == {"tool_choice": '"auto"'}
    assert call.ttft_ms == 68.2
    assert call.time == 1764484704.25
    assert call.spans[1] == ("messages[0]", 20, 40)
    assert call.length == 60


def test_the_renderer_gives_each_item_its_tokens() -> None:
    (call,) = calls_of(record())
    rendered = Renderer().render(call)
    assert [s.end - s.start for s in rendered.pieces] == [12, 8, 20, 9, 8]


def test_two_prompts_part_at_the_first_item_that_differs() -> None:
    other = record()
    other["spans"][2][6][1][1] = "0" * 12
    one, two = calls_of(record(), other)
    a, b = (Renderer().render(c) for c in (one, two))
    same = (a.prompt.token_ids[: b.prompt.token_ids.size] == b.prompt.token_ids).tolist()
    assert same.index(False) == a.pieces[4].start


def test_an_answer_is_found_again_in_the_next_prompt() -> None:
    """The replay may count the reply's tokens as cached, as the engine does."""
    later = record(id="req-8", prompt_tokens=77)
    later["spans"][3:] = [
        ["messages[2]", "history", "assistant", 57, 67, "an" * 8, [[None, "9" * 12, 10]]],
        ["messages[3]", "question", "user", 67, 77, "d5" * 8, [[None, "8" * 12, 10]]],
    ]
    first, second = calls_of(record(), later)
    assert second.parts[3].pieces[0].key == first.answer[0].key
    renderer = Renderer()
    before, after = renderer.render(first), renderer.render(second)
    kept = len(before.full) - 1  # its closing token is the template's
    assert (before.full[:kept] == after.prompt.token_ids[:kept]).all()
    assert sum(p.size for p in second.parts[3].pieces) == 10 * 4


def test_with_the_text_it_is_a_request_like_any_other() -> None:
    body = {"model": "qwen2.5-0.5b", "messages": [{"role": "user", "content": "q"}]}
    reply = {"choices": [{"message": {"role": "assistant", "content": "a"}}]}
    (call,) = calls_of(record(text=body, reply=reply))
    assert [p.text for p in call.parts] == ["q"]
    assert [p.text for p in call.answer] == ["a"]
    assert call.usage == Usage(60, 30, None, 5)
    assert (call.session, call.salt, call.provider) == ("t-1", "3f2a", "agentkv")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"agentkv": 2}, "a recording of version 2; this release reads version 1"),
        ({"spans": []}, "neither spans nor text"),
        ({"spans": [["x", "tools", None, 9, 3, "d", []], "y", None]}, "neither spans nor text"),
    ],
)
def test_what_cannot_be_read_is_said(change: dict[str, Any], why: str) -> None:
    problems = Problems()
    assert list(read_record(record(**change), Where("log", 4), Reading(problems))) == []
    assert dict(problems.counts) == {"no request": 1}
    assert why in str(problems.first[0])


def test_what_was_not_measured_is_none() -> None:
    (call,) = calls_of(record(cached_tokens=None, prompt_tokens=None, completion_tokens=None))
    assert call.usage == Usage()
