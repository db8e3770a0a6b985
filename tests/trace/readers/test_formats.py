"""One conversation, written in every format: each reader must see the same prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.trace.call import Call, Usage
from agentkv.trace.readers import Problems, formats, read

RULES = "You book flights.\nBe brief."
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}, "from": {"type": "string"}}}
ARGUMENTS = '{"to": "OSL", "from": "BER"}'
RESULT = '[{"price": 120}]'
T0 = 1_750_000_000.0
ISO = "2025-06-15T15:06:40Z"

# role, kind of the part, (kind, text) of its pieces
EXPECTED: list[Any] = [
    ("system", "instructions", [("text", RULES)]),
    ("user", "history", [("text", "Find me a flight")]),
    ("assistant", "history", [("text", "Looking."), ("tool_call", ARGUMENTS)]),
    ("tool", "history", [("tool_result", RESULT)]),
    ("user", "question", [("text", "And a hotel?")]),
]
CALL = {
    "id": "call_x1",
    "type": "function",
    "function": {"name": "search", "arguments": ARGUMENTS},
}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": RULES},
    {"role": "user", "content": "Find me a flight"},
    {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_x1", "content": RESULT},
    {"role": "user", "content": "And a hotel?"},
]
TOOL = {"type": "function", "function": {"name": "search", "parameters": SCHEMA}}
REPLY = {
    "id": "chatcmpl-1",
    "created": int(T0),
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "No hotels."}}],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 64},
    },
}
BLOCKS = [
    {"role": "user", "content": "Find me a flight"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "t1", "name": "search", "input": json.loads(ARGUMENTS)},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": RESULT}],
    },
    {"role": "user", "content": [{"type": "text", "text": "And a hotel?"}]},
]


def openai() -> Any:
    body = {"model": "gpt-4o", "messages": CHAT, "tools": [TOOL], "temperature": 0.5}
    return {"time": T0, "session_id": "s1", "user": "u1", "request": body, "response": REPLY}


def bare() -> Any:
    return {
        "timestamp": T0 * 1000,
        "thread_id": "s1",
        "user": "u1",
        "model": "gpt-4o",
        "messages": CHAT,
        "tools": [TOOL],
        "response": REPLY,
    }


def responses() -> Any:
    items = [
        CHAT[1],
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Looking.", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "id": "fc_1", "name": "search",
         "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "c", "output": RESULT},
        CHAT[4],
    ]  # fmt: skip
    body = {
        "model": "gpt-4o",
        "instructions": RULES,
        "input": items,
        "tools": [{"type": "function", "name": "search", "parameters": SCHEMA}],
    }
    reply = {
        "id": "resp_1",
        "object": "response",
        "output": [{"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "No hotels."}]}],
        "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64},
                  "output_tokens": 7},
    }  # fmt: skip
    return {"ts": ISO, "metadata": {"session_id": "s1", "user_id": "u1"},
            "request": body, "response": reply}  # fmt: skip


def anthropic() -> Any:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 99,
        "system": [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "search", "input_schema": SCHEMA}],
        "messages": BLOCKS,
        "metadata": {"user_id": "u1"},
    }
    reply = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "No hotels."}],
        "usage": {"input_tokens": 6, "cache_read_input_tokens": 64,
                  "cache_creation_input_tokens": 30, "output_tokens": 7},
    }  # fmt: skip
    return {"time": T0, "conversation": {"id": "s1"}, "request": body, "response": reply}


def bedrock() -> Any:
    body = {
        "modelId": "anthropic.claude-sonnet-4-5",
        "system": [{"text": RULES}, {"cachePoint": {"type": "default"}}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "search", "inputSchema": {"json": SCHEMA}}}]},
        "messages": [
            {"role": "user", "content": [{"text": "Find me a flight"}]},
            {"role": "assistant", "content": [
                {"text": "Looking."},
                {"toolUse": {"toolUseId": "t", "name": "search", "input": json.loads(ARGUMENTS)}}]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "t", "content": [{"json": json.loads(RESULT)}]}}]},
            {"role": "user", "content": [{"text": "And a hotel?"}]},
        ],
    }  # fmt: skip
    reply = {
        "output": {"message": {"role": "assistant", "content": [{"text": "No hotels."}]}},
        "usage": {"inputTokens": 6, "cacheReadInputTokens": 64, "cacheWriteInputTokens": 30,
                  "outputTokens": 7},
    }  # fmt: skip
    return {"time": T0, "session_id": "s1", "user": "u1", "request": body, "response": reply}


def invocation() -> Any:
    made = bedrock()
    return {
        "schemaType": "ModelInvocationLog",
        "timestamp": ISO,
        "operation": "Converse",
        "modelId": "anthropic.claude-sonnet-4-5",
        "requestId": "r-1",
        "identity": {"arn": "u1"},
        "requestMetadata": {"session_id": "s1"},
        "input": {"inputBodyJson": made["request"], "inputTokenCount": 6,
                  "cacheReadInputTokenCount": 64, "cacheWriteInputTokenCount": 30},
        "output": {"outputBodyJson": made["response"], "outputTokenCount": 7},
    }  # fmt: skip


def gemini() -> Any:
    body = {
        "systemInstruction": {"parts": [{"text": RULES}]},
        "tools": [{"functionDeclarations": [{"name": "search", "parameters": SCHEMA}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "Find me a flight"}]},
            {"role": "model", "parts": [
                {"text": "Looking."},
                {"functionCall": {"name": "search", "args": json.loads(ARGUMENTS)}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "search", "response": {"output": 1}}}]},
            {"role": "user", "parts": [{"text": "And a hotel?"}]},
        ],
    }  # fmt: skip
    reply = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "No hotels."}]}}],
        "usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 64,
                          "candidatesTokenCount": 7},
    }  # fmt: skip
    url = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent"
    return {"time": T0, "session_id": "s1", "user": "u1", "url": url,
            "request": body, "response": reply}  # fmt: skip


def _langchain(name: str, **kwargs: Any) -> Any:
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


def langsmith() -> Any:
    messages = [
        _langchain("SystemMessage", content=RULES, type="system"),
        _langchain("HumanMessage", content="Find me a flight", type="human"),
        _langchain("AIMessage", content="Looking.", type="ai",
                   tool_calls=[{"name": "search", "args": json.loads(ARGUMENTS), "id": "r1"}]),
        _langchain("ToolMessage", content=RESULT, type="tool", tool_call_id="r1"),
        _langchain("HumanMessage", content=[{"type": "text", "text": "And a hotel?"}]),
    ]  # fmt: skip
    answer = _langchain(
        "AIMessage",
        content="No hotels.",
        usage_metadata={"input_tokens": 100, "output_tokens": 7,
                        "input_token_details": {"cache_read": 64}},
    )  # fmt: skip
    return {
        "id": "11111111-aaaa",
        "run_type": "llm",
        "start_time": "2025-06-15T15:06:40.000000",
        "session_id": "the-project",
        "trace_id": "tr",
        "inputs": {"messages": [messages]},
        "outputs": {"generations": [[{"text": "No hotels.", "message": answer}]]},
        "extra": {
            "invocation_params": {"model": "gpt-4o", "tools": [TOOL]},
            "metadata": {"thread_id": "s1", "user_id": "u1", "ls_provider": "openai"},
        },
    }


NEW_PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Find me a flight"}]},
    {"role": "assistant", "parts": [
        {"type": "text", "content": "Looking."},
        {"type": "tool_call", "id": "c", "name": "search", "arguments": json.loads(ARGUMENTS)}]},
    {"role": "tool", "parts": [
        {"type": "tool_call_response", "id": "c", "result": RESULT}]},
    {"role": "user", "parts": [{"type": "text", "content": "And a hotel?"}]},
]  # fmt: skip
COUNTED = {
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.cache_read.input_tokens": 64,
    "gen_ai.usage.output_tokens": 7,
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.conversation.id": "s1",
    "user.id": "u1",
}


def _otlp(attributes: dict[str, Any]) -> Any:
    def value(raw: Any) -> Any:
        return {"intValue": str(raw)} if isinstance(raw, int) else {"stringValue": raw}

    span = {
        "traceId": "aa",
        "spanId": "bb",
        "startTimeUnixNano": "1750000000000000000",
        "attributes": [{"key": k, "value": value(v)} for k, v in attributes.items()],
    }
    other = {"traceId": "aa", "spanId": "cc", "name": "SELECT", "attributes": []}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [other, span]}]}]}


def otel_new() -> Any:
    return _otlp(
        {
            **COUNTED,
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": RULES}]),
            "gen_ai.input.messages": json.dumps(NEW_PARTS),
            "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": [{"type": "text", "content": "No hotels."}]}]
            ),
            "gen_ai.tool.definitions": json.dumps([TOOL]),
        }
    )


def otel_numbered() -> Any:
    found: dict[str, Any] = {**COUNTED}
    for index, message in enumerate(CHAT):
        found[f"gen_ai.prompt.{index}.role"] = message["role"]
        found[f"gen_ai.prompt.{index}.content"] = message["content"]
    found["gen_ai.prompt.2.tool_calls.0.name"] = "search"
    found["gen_ai.prompt.2.tool_calls.0.arguments"] = ARGUMENTS
    found["gen_ai.completion.0.role"] = "assistant"
    found["gen_ai.completion.0.content"] = "No hotels."
    found["llm.request.functions.0.name"] = "search"
    found["llm.request.functions.0.parameters"] = json.dumps(SCHEMA)
    return _otlp(found)


def otel_console() -> Any:
    """What the console exporter of Python prints, with OpenInference's names."""
    found: dict[str, Any] = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-4o",
        "llm.provider": "openai",
        "session.id": "s1",
        "user.id": "u1",
        "llm.token_count.prompt": 100,
        "llm.token_count.prompt_details.cache_read": 64,
        "llm.token_count.completion": 7,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "No hotels.",
        "llm.tools.0.tool.json_schema": json.dumps(TOOL),
    }
    for index, message in enumerate(CHAT):
        found[f"llm.input_messages.{index}.message.role"] = message["role"]
        found[f"llm.input_messages.{index}.message.content"] = message["content"]
    call = "llm.input_messages.2.message.tool_calls.0.tool_call.function."
    found[call + "name"], found[call + "arguments"] = "search", ARGUMENTS
    return {
        "name": "ChatCompletion",
        "context": {"trace_id": "0xaa", "span_id": "0xbb"},
        "start_time": "2025-06-15T15:06:40.000000Z",
        "attributes": found,
    }


def langfuse() -> Any:
    return {
        "id": "trace-1",
        "sessionId": "s1",
        "userId": "u1",
        "observations": [
            {"id": "o0", "type": "SPAN", "traceId": "trace-1", "input": {"q": 1}},
            {
                "id": "o1",
                "type": "GENERATION",
                "traceId": "trace-1",
                "startTime": "2025-06-15T15:06:40.000Z",
                "model": "gpt-4o",
                "input": {"messages": CHAT, "tools": [TOOL]},
                "output": {"role": "assistant", "content": "No hotels."},
                "usageDetails": {"input": 36, "input_cached_tokens": 64, "output": 7, "total": 107},
            },
        ],
    }


def litellm() -> Any:
    return {
        "id": "chatcmpl-1",
        "call_type": "acompletion",
        "custom_llm_provider": "openai",
        "trace_id": "tt",
        "startTime": T0,
        "completionStartTime": T0 + 0.25,
        "endTime": T0 + 2,
        "model": "gpt-4o",
        "messages": CHAT,
        "response": REPLY,
        "model_parameters": {"tools": [TOOL]},
        "prompt_tokens": 100,
        "end_user": "u1",
        "metadata": {"requester_metadata": {"session_id": "s1"}},
    }


FORMS: dict[str, tuple[Callable[[], Any], str]] = {
    "openai": (openai, "http"),
    "bare": (bare, "openai"),
    "responses": (responses, "http"),
    "anthropic": (anthropic, "http"),
    "bedrock": (bedrock, "http"),
    "invocation": (invocation, "http"),
    "gemini": (gemini, "http"),
    "langsmith": (langsmith, "langsmith"),
    "otel_new": (otel_new, "otel"),
    "otel_numbered": (otel_numbered, "otel"),
    "otel_console": (otel_console, "otel"),
    "langfuse": (langfuse, "langfuse"),
    "litellm": (litellm, "litellm"),
}


def call_in(tmp_path: Path, record: Any) -> tuple[Call, Problems]:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record) + "\n")
    problems = Problems()
    (call,) = read([path], problems=problems)
    assert problems.bad == 0, problems.first
    return call, problems


@pytest.mark.parametrize("name", FORMS)
def test_the_same_prompt_is_seen(name: str, tmp_path: Path) -> None:
    make, format_name = FORMS[name]
    call, problems = call_in(tmp_path, make())
    assert dict(problems.formats) == {format_name: 1}
    tools, *parts = call.parts
    assert (tools.name, tools.kind, tools.role) == ("tools", "tools", None)
    assert [(p.kind, p.name) for p in tools.pieces] == [("tool", "search")]
    # The schema stands in the tool's text with its keys in the order of the log.
    assert json.dumps(SCHEMA)[1:-1] in tools.pieces[0].text
    seen: list[Any] = [(p.role, p.kind, [(q.kind, q.text) for q in p.pieces]) for p in parts]
    if name == "gemini":  # its results are objects
        assert seen[3] == ("tool", "history", [("tool_result", '{"output": 1}')])
        seen[3] = EXPECTED[3]
    assert seen == EXPECTED
    calls = [q for p in parts for q in p.pieces if q.kind == "tool_call"]
    assert [c.name for c in calls] == ["search"]


@pytest.mark.parametrize("name", FORMS)
def test_who_when_and_how_much(name: str, tmp_path: Path) -> None:
    call, _ = call_in(tmp_path, FORMS[name][0]())
    written = 30 if name in ("anthropic", "bedrock", "invocation") else None
    assert call.usage == Usage(100, 64, written, 7)
    assert call.time == T0
    assert (call.session, call.user) == ("s1", "u1")
    assert [(p.kind, p.text) for p in call.answer] == [("text", "No hotels.")]
    assert call.error is None
    assert call.model in ("gpt-4o", "claude-sonnet-4-5", "anthropic.claude-sonnet-4-5",
                          "gemini-2.5-pro")  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_format_can_be_named(name: str, tmp_path: Path) -> None:
    make, format_name = FORMS[name]
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(make()))
    assert format_name in formats()
    (call,) = read([path], format=format_name)
    assert len(call.parts) == 6


def test_markers_of_bedrock_and_anthropic(tmp_path: Path) -> None:
    for make in (anthropic, bedrock):
        call, _ = call_in(tmp_path, make())
        marked = [p.name for p in call.parts for q in p.pieces if q.marker is not None]
        assert marked == ["system"]
        assert call.parts[1].pieces[0].marker == 0


def test_time_to_first_token(tmp_path: Path) -> None:
    call, _ = call_in(tmp_path, litellm())
    assert call.ttft_ms == 250.0
    call, _ = call_in(tmp_path, {**litellm(), "completionStartTime": T0 + 2})
    assert call.ttft_ms is None  # the end of a reply that was not streamed is no first token


def test_random_ids_are_in_no_part(tmp_path: Path) -> None:
    one, _ = call_in(tmp_path, openai())
    other = json.loads(json.dumps(openai()).replace("call_x1", "call_zz9"))
    two, _ = call_in(tmp_path, other)
    assert [p.key for p in one.parts] == [p.key for p in two.parts]


def test_order_of_keys_shows(tmp_path: Path) -> None:
    """Providers render tools as they come, so another order of keys is another prompt."""
    one, _ = call_in(tmp_path, openai())
    turned = json.loads(json.dumps(openai()))
    schema = turned["request"]["tools"][0]["function"]["parameters"]
    schema["properties"] = dict(reversed(schema["properties"].items()))
    two, _ = call_in(tmp_path, turned)
    assert one.parts[0].key != two.parts[0].key
    assert one.parts[1].key == two.parts[1].key


def test_blanks_in_the_json_of_the_log_do_not_show(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(bare()) + "\n" + json.dumps(bare(), separators=(",", ":")) + "\n")
    one, two = read([path])
    assert [p.key for p in one.parts] == [p.key for p in two.parts]
