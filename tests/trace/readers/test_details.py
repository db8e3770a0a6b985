"""Single matters of a request: images, names, thoughts, schemas, settings, streams, times, frames."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkv.trace.call import Call, Usage, Where
from agentkv.trace.readers import Problems, read, read_record
from agentkv.trace.readers.blocks import pieces_of
from agentkv.trace.readers.fields import seconds, session_of
from agentkv.trace.readers.reading import Reading, Recent
from agentkv.trace.readers.replies import reply_of
from agentkv.trace.readers.usage import usage_of


def call_of(record: Any) -> Call:
    problems = Problems()
    (call,) = read_record(record, Where("log", 1), Reading(problems))
    assert problems.bad == 0, problems.first
    return call


def chat(*messages: Any, **more: Any) -> Call:
    return call_of({"model": "gpt-4o", "messages": list(messages), "top_p": 1, **more})


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def kinds(call: Call) -> list[tuple[str, str]]:
    return [(p.name, p.kind) for p in call.parts]


class TestParts:
    def test_leading_messages_are_instructions_and_the_last_of_the_user_the_question(self) -> None:
        call = chat(
            {"role": "developer", "content": "D"},
            {"role": "system", "content": "Q: 1+1?", "name": "example_user"},
            user("one"),
            {"role": "assistant", "content": "two"},
            {"role": "system", "content": "now it is noon"},
            user("three"),
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "r", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "r", "content": "4"},
        )  # fmt: skip
        assert kinds(call) == [
            ("messages[0]", "instructions"),
            ("messages[1]", "examples"),
            ("messages[2]", "history"),
            ("messages[3]", "history"),
            ("messages[4]", "history"),
            ("messages[5]", "question"),
            ("messages[6]", "history"),
            ("messages[7]", "history"),
        ]
        assert call.parts[0].role == "developer"

    def test_text_and_a_block_of_the_same_text_are_equal(self) -> None:
        one, two = chat(user("a")), chat(user([{"type": "text", "text": "a"}]))
        assert one.parts[0].key == two.parts[0].key

    def test_a_name_is_part_of_a_message(self) -> None:
        assert chat(user("a", name="ann")).parts[0].key != chat(user("a", name="bob")).parts[0].key

    def test_a_schema_is_in_front_where_its_provider_puts_it_there(self) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
        tools = [{"type": "function", "function": {"name": "f"}}]
        call = chat(
            {"role": "system", "content": "S"}, user("q"), tools=tools, response_format=form
        )
        assert [p.name for p in call.parts] == [
            "tools", "response_format", "messages[0]", "messages[1]"]  # fmt: skip
        assert call.parts[1].pieces[0].kind == "schema"
        assert "response_format" in call.settings
        # A server of one's own constrains the decoding and leaves the prompt alone.
        body = {"model": "gpt-4o", "messages": [user("q")], "response_format": form}
        own = call_of({"url": "http://localhost:8000/v1/chat/completions", "request": body})
        assert [p.name for p in own.parts] == ["messages[0]"]
        qwen = call_of({"model": "qwen", "messages": [user("q")], "response_format": form})
        assert [p.name for p in qwen.parts] == ["messages[0]"]

    def test_documents_beside_the_messages(self) -> None:
        docs = [{"id": "d1", "data": {"title": "T", "snippet": "one"}}, "two"]
        call = chat({"role": "system", "content": "S"}, user("q"), documents=docs)
        assert kinds(call)[1] == ("documents", "documents")
        assert [(p.kind, p.text) for p in call.parts[1].pieces] == [
            ("document", "one"),
            ("document", "two"),
        ]

    def test_old_functions_and_function_calls(self) -> None:
        call = chat(
            user("q"),
            {"role": "assistant", "content": None,
             "function_call": {"name": "f", "arguments": '{"a":1}'}},
            {"role": "function", "name": "f", "content": "r"},
            functions=[{"name": "f", "parameters": {}}],
            function_call={"name": "f"},
        )  # fmt: skip
        assert [(p.kind, p.name) for p in call.parts[0].pieces] == [("tool", "f")]
        assert (call.parts[2].pieces[0].kind, call.parts[2].pieces[0].text) == (
            "tool_call", '{"a":1}')  # fmt: skip
        assert call.parts[3].role == "tool"
        assert call.settings["tool_choice"] == '{"name":"f"}'

    def test_calls_that_langchain_has_twice_count_once(self) -> None:
        message = {
            "type": "ai",
            "content": [{"type": "text", "text": "x"},
                        {"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            "tool_calls": [{"name": "f", "args": {}, "id": "t"}],
        }  # fmt: skip
        call = chat(user("q"), message, user("r"))
        assert [p.kind for p in call.parts[1].pieces] == ["text", "tool_call"]

    def test_settings_hold_what_keys_a_cache_and_nothing_else(self) -> None:
        call = chat(
            user("q"),
            tool_choice={"b": 1, "a": 2},
            prompt_cache_key="k",
            temperature=0.3,
            seed=5,
            reasoning_effort="high",
            parallel_tool_calls=None,
        )
        assert call.settings == {
            "tool_choice": '{"a":2,"b":1}',
            "prompt_cache_key": '"k"',
            "reasoning_effort": '"high"',
        }
        assert call.session is None

    def test_a_salt(self) -> None:
        assert chat(user("q"), cache_salt="tenant-1").salt == "tenant-1"


class TestPieces:
    PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))

    def test_the_same_image_is_equal_in_every_dialect(self) -> None:
        data = base64.b64encode(self.PNG).decode()
        dialects: list[Any] = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
            {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
            {"type": "image",
             "source": {"type": "base64", "media_type": "image/png", "data": data}},
            {"type": "image", "base64": data, "mime_type": "image/png"},
            {"inlineData": {"mimeType": "image/png", "data": data}},
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": data},
        ]  # fmt: skip
        found = [pieces_of([d]) for d in dialects]
        assert all(len(p) == 1 and p[0].kind == "image" for p in found)
        assert len({p[0].text for p in found}) == 1
        assert found[0][0].text.startswith("data:image/png;blake2:")
        assert len(found[0][0].text) < 64
        other = base64.b64encode(self.PNG + b"!").decode()
        (changed,) = pieces_of([{"type": "image", "base64": other, "mime_type": "image/png"}])
        assert changed.text != found[0][0].text

    def test_an_address_stays_and_so_does_the_detail(self) -> None:
        url = "https://x.test/a.png?sig=123"
        (piece,) = pieces_of([{"type": "image_url", "image_url": {"url": url, "detail": "low"}}])
        assert (piece.text, piece.name) == (url, "low")

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "thinking", "thinking": "hm", "signature": "s1"},
            {"type": "reasoning", "reasoning": "hm"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"text": "hm", "thought": True},
            {"type": "reasoning", "content": "hm"},
        ],
    )
    def test_thoughts(self, block: dict[str, Any]) -> None:
        assert [(p.kind, p.text) for p in pieces_of([block])] == [("reasoning", "hm")]

    @pytest.mark.parametrize(
        "extra",
        [
            {"reasoning_content": "hm"},
            {"reasoning": "hm"},
            {"thinking": "hm"},
            {"additional_kwargs": {"reasoning_content": "hm"}},
            {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
            {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        ],
    )
    def test_thoughts_beside_the_content(self, extra: dict[str, Any]) -> None:
        call = chat(user("q"), {"role": "assistant", "content": "a", **extra}, user("r"))
        assert [(p.kind, p.text) for p in call.parts[1].pieces] == [
            ("reasoning", "hm"),
            ("text", "a"),
        ]

    def test_arguments_stay_as_they_were_logged(self) -> None:
        odd = '{ "b":1,\n"a" : 2}'
        made = {"id": "r", "function": {"name": "f", "arguments": odd}}
        call = chat(user("q"), {"role": "assistant", "tool_calls": [made]}, user("r"))
        assert call.parts[1].pieces[0].text == odd

    def test_results_with_pictures(self) -> None:
        block = {"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "seen"},
            {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}]}  # fmt: skip
        assert [p.kind for p in pieces_of([block])] == ["tool_result", "image"]

    def test_an_unknown_block_is_kept_whole(self) -> None:
        (piece,) = pieces_of([{"type": "hologram", "cube": [1, 2]}])
        assert piece.text == '{"type": "hologram", "cube": [1, 2]}'

    def test_documents(self) -> None:
        anthropic = {
            "type": "document",
            "title": "T",
            "context": "c",
            "source": {"type": "text", "media_type": "text/plain", "data": "body"},
        }
        (piece,) = pieces_of([anthropic])  # fmt: skip
        assert (piece.kind, piece.name, piece.text) == ("document", "T", "c\nbody")
        raw = base64.b64encode(b"%PDF-1.7 and more").decode()
        pdf = {"type": "document", "source": {
            "type": "base64", "media_type": "application/pdf", "data": raw}}  # fmt: skip
        assert pieces_of([pdf])[0].text.startswith("data:application/pdf;blake2:")

    def test_markers(self) -> None:
        def marker(control: Any) -> int | None:
            return pieces_of([{"type": "text", "text": "a", "cache_control": control}])[0].marker

        assert marker({"type": "ephemeral"}) == 0
        assert marker({"type": "ephemeral", "ttl": "1h"}) == 3600
        assert marker(None) is None
        one, two = pieces_of([{"text": "a"}, {"cachePoint": {"type": "default", "ttl": "5m"}},
                              {"text": "b"}])  # fmt: skip
        assert (one.marker, two.marker) == (300, None)
        # A marker does not change what is sent.
        assert pieces_of("a")[0].key == one.key


class TestStreams:
    def test_bedrock(self) -> None:
        chunks = [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "He"}}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "llo"}}},
            {"contentBlockStart": {"contentBlockIndex": 1,
                                   "start": {"toolUse": {"toolUseId": "t", "name": "f"}}}},
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"a"'}}}},
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": ":1}"}}}},
            {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 2,
                                    "cacheReadInputTokens": 9, "cacheWriteInputTokens": 0}}},
        ]  # fmt: skip
        reply = reply_of(chunks)
        assert [(p.kind, p.name, p.text) for p in reply.answer] == [
            ("text", None, "Hello"),
            ("tool_call", "f", '{"a":1}'),
        ]
        assert reply.usage == Usage(12, 9, 0, 2)

    def test_gemini(self) -> None:
        def chunk(part: Any, **more: Any) -> str:
            made = {"candidates": [{"content": {"role": "model", "parts": [part]}}], **more}
            return "data: " + json.dumps(made) + "\r\n\r\n"

        usage = {"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}
        raw = (
            chunk({"text": "hm", "thought": True})
            + chunk({"text": "He"})
            + chunk({"text": "llo"}, usageMetadata=usage)
        )
        reply = reply_of(raw)
        assert [(p.kind, p.text) for p in reply.answer] == [("reasoning", "hm"), ("text", "Hello")]
        assert reply.usage == Usage(10, None, None, 5)

    def test_cohere(self) -> None:
        events: list[dict[str, Any]] = [
            {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}},
            {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}},
            {"type": "message-end", "delta": {"usage": {
                "tokens": {"input_tokens": 8, "output_tokens": 1}, "cached_tokens": 5}}},
        ]  # fmt: skip
        raw = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
        reply = reply_of(raw)
        assert [p.text for p in reply.answer] == ["Hi"]
        assert reply.usage == Usage(8, 5, None, 1)

    def test_ollama(self) -> None:
        rows = [
            {"model": "q", "message": {"role": "assistant", "content": "He"}, "done": False},
            {"model": "q", "message": {"role": "assistant", "content": "y"}, "done": True,
             "prompt_eval_count": 3, "eval_count": 2},
        ]  # fmt: skip
        reply = reply_of("\n".join(map(json.dumps, rows)))
        assert [p.text for p in reply.answer] == ["Hey"]
        # It counts what it computed, which is not the prompt when part of it was cached.
        assert reply.usage == Usage(None, None, None, 2)

    def test_a_stream_that_was_cut_keeps_its_words_and_counts_nothing(self) -> None:
        whole = {"choices": [{"delta": {"content": "He"}}]}
        reply = reply_of(f'data: {json.dumps(whole)}\n\ndata: {{"choices": [{{"del')
        assert [p.text for p in reply.answer] == ["He"]
        assert reply.usage == Usage()

    def test_a_line_separator_inside_a_word(self) -> None:
        chunk = {"choices": [{"delta": {"content": "a\u2028b\x85c"}}]}
        reply = reply_of(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\ndata: [DONE]\n\n")
        assert reply.answer[0].text == "a\u2028b\x85c"

    def test_calls_in_pieces_and_only_the_first_choice(self) -> None:
        def delta(index: int, **made: Any) -> dict[str, Any]:
            return {"choices": [{"index": index, "delta": made}]}

        def call(arguments: str, **named: str) -> list[Any]:
            return [{"index": 0, "id": "c", "function": {"arguments": arguments, **named}}]

        reply = reply_of(
            [
                delta(0, tool_calls=call("", name="f")),
                delta(1, content="another answer"),
                delta(0, tool_calls=call('{"a":')),
                delta(0, tool_calls=call("1}")),
            ]
        )
        assert [(p.kind, p.name, p.text) for p in reply.answer] == [("tool_call", "f", '{"a":1}')]


class TestUsage:
    @pytest.mark.parametrize(
        ("raw", "usage"),
        [
            ({"prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 2}, (7, 5, None, None)),
            ({"prompt_tokens": 9, "cached_tokens": 4}, (9, 4, None, None)),  # Moonshot
            ({"prompt_tokens": 9, "prompt_tokens_details": None}, (9, None, None, None)),
            ({"prompt_tokens": 9, "cache_read_input_tokens": 4,
              "cache_creation_input_tokens": 2}, (9, 4, 2, None)),  # LiteLLM
            ({"input_tokens": 3, "output_tokens": 1}, (3, None, None, 1)),
            ({"input_tokens": 3, "cache_read_input_tokens": None,
              "cache_creation_input_tokens": 4}, (7, None, 4, None)),
            ({}, (None, None, None, None)),
            ("?", (None, None, None, None)),
        ],
    )  # fmt: skip
    def test_names(self, raw: Any, usage: tuple[int | None, ...]) -> None:
        assert usage_of(raw) == Usage(*usage)

    def test_llama_cpp(self) -> None:
        timings = {"cache_n": 90, "prompt_n": 10, "predicted_n": 4}
        reply = reply_of({"content": "a", "timings": timings})
        assert reply.usage == Usage(100, 90, None, 4)
        assert reply_of({"content": "a", "timings": {"prompt_n": 10}}).usage.cached is None


class TestFrames:
    def test_errors(self) -> None:
        body = {"model": "gpt-4o", "messages": [user("q")]}
        failed = call_of({"request": body, "status": 429, "response": {
            "error": {"message": "slow down", "type": "rate_limit"}}})  # fmt: skip
        assert failed.error == "slow down"
        assert call_of({"request": body, "status": 503, "response": "busy"}).error == (
            "HTTP status 503")  # fmt: skip
        assert call_of({"request": body, "status": 200, "response": {}}).error is None

    def test_har(self, tmp_path: Path) -> None:
        def entry(url: str, body: Any, answer: Any) -> dict[str, Any]:
            return {
                "startedDateTime": "2025-06-15T15:06:40.000Z",
                "request": {"method": "POST", "url": url, "headers": [],
                            "postData": {"mimeType": "application/json",
                                         "text": json.dumps(body)}},
                "response": {"status": 200, "headers": [],
                             "content": {"mimeType": "application/json",
                                         "text": json.dumps(answer)}},
            }  # fmt: skip

        answer = {
            "choices": [{"message": {"role": "assistant", "content": "a"}}],
            "usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}},
        }
        body = {"model": "gpt-4o", "messages": [user("q")]}  # fmt: skip
        har = {"log": {"version": "1.2", "entries": [
            entry("https://api.groq.com/openai/v1/chat/completions", body, answer)]}}  # fmt: skip
        (tmp_path / "a.har").write_text(json.dumps(har, indent=1))
        (call,) = read([tmp_path / "a.har"])
        assert call.provider == "groq"
        assert call.usage == Usage(5, 2, None, None)
        assert call.time == 1_750_000_000.0
        assert [p.text for p in call.answer] == ["a"]

    def test_a_body_as_text_and_usage_beside_it(self) -> None:
        body = json.dumps({"model": "gpt-4o", "messages": [user("q")]})
        usage = {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
        call = call_of({"request_body": body, "response_body": json.dumps({"usage": usage})})
        assert call.usage.cached == 3
        call = call_of({"request": json.loads(body), "usage": usage})
        assert call.usage == Usage(7, 3, None, None)

    def test_the_session_of_a_coding_agent(self) -> None:
        session = "0a1b2c3d-1111-2222-3333-444455556666"
        name = f"user_9f_account_77_session_{session}"
        call = call_of({"model": "claude-x", "system": "S", "max_tokens": 3,
                        "metadata": {"user_id": name}, "messages": [user("q")]})  # fmt: skip
        assert call.session == session

    def test_a_session_in_the_headers(self) -> None:
        body: dict[str, Any] = {"model": "gpt-4o", "messages": [user("q")]}
        framed = {"url": "https://api.openai.com/v1/chat/completions", "body": body}
        plain = call_of({"request": {**framed, "headers": {"X-Session-Id": "s9"}}})
        assert plain.session == "s9"
        har = [{"name": "x-request-id", "value": "r"}, {"name": "session_id", "value": "s8"}]
        assert call_of({"request": {**framed, "headers": har}}).session == "s8"
        # The thread comes before the trace, wherever each of them stands.
        body["metadata"] = {"thread_id": "th"}
        assert call_of({"trace_id": "t", "request": body}).session == "th"

    def test_sessions(self) -> None:
        assert session_of({"trace_id": "t"}) == "t"
        assert session_of({"trace_id": "t", "metadata": {"thread_id": "th"}}) == "th"
        assert session_of({"session": {"id": 7}}) == "7"
        assert session_of({"session_id": ""}) is None

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (1_750_000_000, 1_750_000_000.0),
            (1_750_000_000_000, 1_750_000_000.0),
            ("1750000000000000000", 1_750_000_000.0),
            ("2025-06-15T15:06:40Z", 1_750_000_000.0),
            ("2025-06-15T17:06:40+02:00", 1_750_000_000.0),
            ("2025-06-15 15:06:40.000000000 UTC", 1_750_000_000.0),
            ("yesterday", None),
            (True, None),
            (float("nan"), None),
            (-5, None),
        ],
    )
    def test_times(self, value: Any, expected: float | None) -> None:
        assert seconds(value) == expected


def test_memories_are_bounded() -> None:
    recent: Recent[int] = Recent(3)
    for i in range(10):
        recent.put(i, i)
    assert [recent.get(i) for i in range(10)] == [None] * 7 + [7, 8, 9]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(
    [
        "messages",
        "role",
        "content",
        "system",
        "tools",
        "input",
        "prompt",
        "contents",
        "parts",
        "type",
        "text",
        "request",
        "response",
        "usage",
        "run_type",
        "inputs",
        "outputs",
        "attributes",
        "traceId",
        "resourceSpans",
        "observations",
        "conversations",
        "from",
        "value",
        "hash_ids",
        "input_length",
        "requests",
        "block_size",
        "custom_id",
        "body",
        "agentkv",
        "spans",
        "call_type",
        "function",
        "tool_calls",
        "image_url",
        "source",
        "metadata",
        "model",
        "user",
        "choices",
        "delta",
        "message",
        "data",
        "input_text",
        "tool_use",
        "tool_result",
        "thinking",
        "llm",
        "human",
        "extra",
        "events",
        "name",
        "kwargs",
        "id",
        "lc",
    ]
)
JSON = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(WORDS, JSON, min_size=1, max_size=6))
def test_no_value_makes_the_reader_raise(record: dict[str, Any]) -> None:
    problems = Problems()
    calls = list(read_record(record, Where("log", 1), Reading(problems)))
    assert problems.calls == len(calls)
    for call in calls:
        assert all(isinstance(p.text, str) for part in call.parts for p in part.pieces)
        json.dumps([call.id, call.session, call.user, call.model, call.error])


def test_a_thousand_long_requests_are_read_in_seconds(tmp_path: Path) -> None:
    """1,000 requests of about 3,400 tokens: well under the two seconds that this part may take."""
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        for i in range(1000):
            messages = [{"role": "system", "content": "rule " * 2000}]
            messages += [user(f"{i} {j} " + "word " * 70) for j in range(20)]
            file.write(json.dumps({"model": "gpt-4o", "messages": messages}) + "\n")
    began = time.perf_counter()
    assert sum(1 for _ in read([path])) == 1000
    assert time.perf_counter() - began < 4.0
