"""Recorded requests of each provider."""

from __future__ import annotations

import json

import pytest

from agentkv.lint.source import Source
from agentkv.lint.template import Request
from tests.lint.formats.file_help import claimed, holes, read, roles, units

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"

ANTHROPIC = {
    "model": "claude-x",
    "max_tokens": 10,
    "system": [
        {
            "type": "text",
            "text": 'You are "kind" é\nIt is now 2026-09-11T08:00:00Z.',
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        },
        {"type": "text", "text": "More."},
    ],
    "tools": [
        {
            "name": "f",
            "description": "x",
            "input_schema": {},
            "cache_control": {"type": "ephemeral"},
        }
    ],
    "messages": [
        {"role": "user", "content": "hi at 2026-09-11T08:00:00Z now"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": "b"}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": "x",
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        },
    ],
}

OPENAI = {
    "model": "gpt-x",
    "messages": [
        {"role": "developer", "content": f"You help. Request id: {UUID}"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "https://b/x?X-Amz-Signature=1"}},
            ],
        },
    ],
    "prompt_cache_key": UUID,
    "temperature": 0,
    "tools": [
        {"type": "function", "function": {"name": "f", "description": "Today is 2026-01-02"}}
    ],
}

RESPONSES = {
    "model": "gpt-x",
    "instructions": "You help. Current date: 2026-01-02",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "output": "x"},
    ],
}

BEDROCK = {
    "modelId": "a.b",
    "system": [{"text": "You help."}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [{"text": "hi"}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": "x"}]}}],
        },
    ],
}

GEMINI = {
    "systemInstruction": {"parts": [{"text": "You help. Now: 2026-01-02 10:00"}]},
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "ho"}]},
    ],
}


def request(body: object) -> tuple[Request, str]:
    text = json.dumps(body, indent=2)
    document = read("request.json", text)
    assert document.format == "request", document
    (one,) = document.requests
    assert one.template is document.templates[0]
    return one, text


def test_anthropic() -> None:
    one, text = request(ANTHROPIC)
    assert one.api == "anthropic" and one.model == "claude-x"
    assert [text[m.start : m.end][:16] for m in one.markers] == ['"cache_control":'] * 3
    assert one.marker_ttls == ("5m", "1h", "5m")  # in the order in which they are rendered
    assert one.template is not None
    assert [p.role for p in one.template.parts] == ["system", "system", "user", "assistant", "tool"]
    assert [p.marker is not None for p in one.template.parts] == [True, False, False, False, True]
    (clock,) = holes(read("request.json", text)).values()
    assert (clock.expr, clock.level, clock.traits, clock.known) == (
        "2026-09-11T08:00:00Z",
        "call",
        {"clock"},
        False,
    )
    assert units(one.template)[0] == ("text", 'You are "kind" é\nIt is now ')


def test_openai_chat() -> None:
    one, text = request(OPENAI)
    assert one.api == "openai"
    key = next(s for s in one.settings if s.name == "prompt_cache_key")
    assert (key.level, key.traits, key.value) == ("call", {"random_id"}, UUID)
    assert "temperature" not in [s.name for s in one.settings]
    assert one.tools is not None and one.tools.dynamic_schema and one.tools.traits == {"date"}
    found = holes(read("request.json", text))
    assert found["request_id"].expr == UUID
    assert "signed_url" in found["image"].traits
    assert roles(read("request.json", text)) == [("system", False), ("user", False)]


def test_openai_responses() -> None:
    one, _ = request(RESPONSES)
    assert one.template is not None
    assert [p.role for p in one.template.parts] == ["system", "user", "assistant", "tool"]
    assert [h.name for _, _, h in one.template.holes()] == ["date"]


def test_bedrock() -> None:
    one, _ = request(BEDROCK)
    assert one.api == "bedrock" and len(one.markers) == 1
    assert one.template is not None
    assert [p.role for p in one.template.parts] == ["system", "user", "tool"]
    assert one.template.parts[0].marker == one.markers[0]


def test_gemini() -> None:
    one, _ = request(GEMINI)
    assert one.api == "gemini"
    assert one.template is not None
    assert [p.role for p in one.template.parts] == ["system", "user", "assistant"]
    assert [h.name for _, _, h in one.template.holes()] == ["timestamp"]


def test_batches_and_logs_are_read_at_their_beginning_and_once_for_each_head() -> None:
    line = json.dumps({"custom_id": "a", "method": "POST", "body": OPENAI})
    document = read("batch.jsonl", "\n".join([line] * 1000))
    (one,) = document.requests
    assert not document.templates[0].writable
    source = Source("batch.jsonl", line)
    assert source[one.slice] == json.dumps(OPENAI)


def test_a_value_that_differs_between_requests_is_known_to_change() -> None:
    def line(when: str, policy: str = "2024-05-15 15:00:00") -> str:
        system = f"Sorted {when}. Rules of {policy} hold."
        return json.dumps(
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": when},
                ],
            }
        )

    document = read("log.jsonl", line("2026-03-04 08:15") + "\n" + line("2026-03-04 08:16") + "\n")
    (template,) = document.templates  # one finding a slot, not one a request
    (hole,) = [h for _, _, h in template.holes()]
    assert (hole.expr, hole.level, hole.known) == ("2026-03-04 08:15", "call", True)
    # Other texts altogether say nothing of a value.
    other = read("log.jsonl", line("2026-03-04 08:15") + "\n" + line("noon", "old times"))
    assert not holes(other)


def test_a_bare_list_of_messages() -> None:
    assert roles(read("chat.json", json.dumps(OPENAI["messages"]))) == [
        ("system", False),
        ("user", False),
    ]


def test_a_chat_whose_texts_are_templates() -> None:
    chat = [
        {"role": "system", "content": "You help {{ user_name }}.\n"},
        {"role": "user", "content": "{{ question }}"},
    ]
    document = read("chat.json", json.dumps(chat))
    assert document.templates[0].syntax == "jinja"
    assert {n: h.level for n, h in holes(document).items()} == {
        "user_name": "user",
        "question": "turn",
    }
    # What was sent is text, whatever it looks like.
    sent = read("log.json", json.dumps({"model": "m", "messages": chat}))
    assert not holes(sent)


@pytest.mark.parametrize(
    "text",
    [
        "The policy was effective since 2024-05-15 15:00:00 EST.",
        "Training data until date: 2024-01-01",
        "Version 2.0, released now on 2024-01-01",
        "Example: the current time (e.g. 2026-09-11T08:00:00Z)",
        f"The product {UUID} costs 3 Euro.",
        "Error 1700000000 means no disk.",
        "deadbeef is a word of code, in_progress and DebugModal too.",
    ],
)
def test_constant_values_are_text(text: str) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": text}, {"role": "user", "content": "x"}],
    }
    one, _ = request(body)
    assert one.template is not None and not list(one.template.holes())


@pytest.mark.parametrize(
    "text",
    [
        "Made 2026-09-11T08:00:00.123Z",
        "Now: 2026-09-11 08:00",
        "Current time: Fri Sep 11 08:00:00 2026",
        "timestamp=1789113600",
        f"session {UUID}",
        "request_id: 9f8e7d6c5b4a",
        "x-billing-hash: 3fa9c01b",
    ],
)
def test_values_of_this_call_are_holes(text: str) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": text}, {"role": "user", "content": "x"}],
    }
    one, _ = request(body)
    assert one.template is not None
    assert [h.level for _, _, h in one.template.holes()] == ["call"]


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "m", "messages": [',
        '{"model": "x", "messages": [{"role": "user"}]} trailing',
        "[" * 5000,
    ],
)
def test_broken_json_is_skipped_with_the_reason(text: str) -> None:
    document = read("a.json", text)
    assert not document.templates


def test_other_json_is_not_claimed() -> None:
    for text in (
        '{"name": "x", "dependencies": {}}',
        '{"openapi": "3.0.0", "model": "x", "input": 1}',
        '{"messages": {"a": "b"}}',
        '{"lc": 1, "messages": [{"role": "x"}]}',
    ):
        assert claimed("a.json", text) != "request"
    assert claimed("package.json", json.dumps(OPENAI)) != "request"
