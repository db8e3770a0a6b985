"""Servers that are not ours: what they are sent, and what is read from what they answer.

The replies are recordings of real ones, played through a transport. Where none exists (llama.cpp,
SGLang, vLLM) a small application answers in the server's documented shape.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentkv.client import ChatReply, ChatRequest, HttpClient, TextRequest
from agentkv.client import errors as e
from agentkv.client import split as splitting
from agentkv.engine.types import Grammar, SamplingParams
from agentkv.prompt.marks import static, volatile
from agentkv.report.report import CacheReport

HELLO = ({"role": "user", "content": "Hello"},)
REQUEST = ChatRequest(messages=HELLO, params=SamplingParams(temperature=0, max_tokens=4))
TOOL = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Find an order.",
        "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
    },
}
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(scope="module")
def recorded(traces: Path) -> list[dict[str, Any]]:
    with gzip.open(traces / "wire" / "recorded_llm_http.jsonl.gz", "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def pick(recorded: list[dict[str, Any]], url: str, cassette: str, i: int = 0) -> dict[str, Any]:
    found = [r for r in recorded if url in r["url"] and cassette in r["cassette"]]
    return found[i]


def request_of(row: dict[str, Any]) -> ChatRequest:
    asked = row["request"] if isinstance(row["request"], dict) else {}
    return ChatRequest(messages=asked.get("messages") or HELLO, tools=asked.get("tools") or ())


def client_of(handler: Handler, url: str = "https://llm.example/v1", **options: Any) -> HttpClient:
    def counted(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/models"):
            return httpx.Response(404)
        return handler(request)

    return HttpClient(
        url,
        model="m",
        http_client=httpx.Client(transport=httpx.MockTransport(counted)),
        http_async_client=httpx.AsyncClient(transport=httpx.MockTransport(counted)),
        max_retries=0,
        **options,
    )


def player(row: dict[str, Any]) -> tuple[HttpClient, list[dict[str, Any]]]:
    """A client whose server answers with a recording, and the bodies that it was sent."""
    sent: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        said = row["response"]
        if isinstance(said, str):
            return httpx.Response(row["status"], content=said.encode())
        return httpx.Response(row["status"], json=said)

    return client_of(handler, url=row["url"].split("/chat/")[0]), sent


def streamed(client: HttpClient, request: ChatRequest) -> tuple[list[Any], ChatReply]:
    *deltas, last = client.stream(request)
    assert last.reply is not None
    for index, choice in enumerate(last.reply.choices):
        assert "".join(d.text for d in deltas if d.index == index) == choice.text
        assert "".join(d.reasoning for d in deltas if d.index == index) == choice.reasoning
    return deltas, last.reply


async def astreamed(client: HttpClient, request: ChatRequest) -> ChatReply:
    last = [d async for d in client.astream(request)][-1].reply
    assert last is not None
    return last


def consistent(report: CacheReport) -> None:
    """What every report promises, an estimated one too."""
    assert report.estimated
    assert 0 <= report.cached_tokens <= report.prompt_tokens
    assert sum(s.tokens for s in report.segments) == report.prompt_tokens
    assert sum(s.cached for s in report.segments) == report.cached_tokens
    partial = [s for s in report.segments if 0 < s.cached < s.tokens]
    assert len(partial) <= 1, "what is reused is a beginning"
    assert report.miss is None or report.miss.reason == "unknown"


# -- recorded replies ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "cassette", "i", "cached", "written"),
    [
        ("api.openai.com", "test_openai_chat_prompt_cache_e2e", 0, 0, 4012),
        ("api.openai.com", "test_openai_chat_prompt_cache_e2e", 1, 4012, 0),
        ("api.openai.com", "test_openai_prompt_caching", 0, 0, 0),
        ("api.openai.com", "test_openai_prompt_caching", 1, 1024, 0),
        ("api.mistral.ai", "test_mistral_history_uses_prompt_cache", 0, 0, 0),
        ("api.mistral.ai", "test_mistral_history_uses_prompt_cache", 1, 224, 0),
        ("api.deepseek.com", "test_deepseek_deferred", 0, 512, 0),
        ("api.deepseek.com", "test_deepseek_deferred", 1, 0, 0),
        ("ollama.com", "test_ollama_cloud", 0, None, 0),
        ("api.cerebras.ai", "test_cerebras", 0, 0, 0),
    ],
)
def test_cached_tokens_as_each_server_says_them(
    recorded: list[dict[str, Any]],
    url: str,
    cassette: str,
    i: int,
    cached: int | None,
    written: int,
) -> None:
    row = pick(recorded, url, cassette, i)
    client, sent = player(row)
    reply = client.send(request_of(row))
    usage = row["response"]["usage"]
    report = reply.report
    assert report.prompt_tokens == usage["prompt_tokens"]
    assert report.completion_tokens == usage["completion_tokens"]
    assert report.cached_known is (cached is not None)
    assert report.cached_tokens == (cached or 0)
    assert report.created_tokens == written
    assert report.to_dict()["estimated"] is True
    consistent(report)
    assert "agentkv" not in json.dumps(sent)
    assert reply.finish_reason == row["response"]["choices"][0]["finish_reason"]


def test_calls_and_reasoning_of_whole_replies(recorded: list[dict[str, Any]]) -> None:
    row = pick(recorded, "api.deepseek.com", "test_deepseek_deferred")
    client, _ = player(row)
    reply = client.send(request_of(row))
    message = row["response"]["choices"][0]["message"]
    (call,) = reply.tool_calls
    assert (call.id, call.name) == ("call_00_sXqYgMESDht75NCLLZtt9804", "load_capability")
    assert json.loads(call.arguments) == {"id": "DICE_ROLL"}
    assert reply.choices[0].reasoning == message["reasoning_content"]
    assert reply.text == message["content"]
    assert reply.finish_reason == "tool_calls"

    row = pick(recorded, "ollama.com", "test_ollama_cloud", 1)
    client, _ = player(row)
    reply = client.send(request_of(row))
    assert reply.choices[0].reasoning == row["response"]["choices"][0]["message"]["reasoning"]
    assert reply.tool_calls[0].name == "final_result"


def test_streamed_calls_of_openai(recorded: list[dict[str, Any]]) -> None:
    row = pick(recorded, "api.openai.com", "test_agents")
    client, sent = player(row)
    deltas, reply = streamed(client, request_of(row))
    (call,) = reply.tool_calls
    pieces = [c for d in deltas for c in d.calls]
    assert pieces[0].id == call.id == "call_Do41uhRCrKGPKQuMeRWhVg7A"
    assert pieces[0].name == call.name and pieces[0].arguments == ""
    assert all(p.id is None and p.name is None for p in pieces[1:])
    assert "".join(p.arguments for p in pieces) == call.arguments
    assert json.loads(call.arguments)["query"]
    assert reply.finish_reason == "tool_calls"
    assert [d.finish_reason for d in deltas if d.finish_reason] == ["tool_calls"]
    assert sent[0]["stream_options"] == {"include_usage": True}
    # That stream was recorded without usage: nothing is known, and nothing is made up.
    assert not reply.report.cached_known
    assert reply.report.prompt_tokens > 0
    consistent(reply.report)


def test_streamed_calls_that_come_whole(recorded: list[dict[str, Any]]) -> None:
    row = pick(recorded, "api.groq.com", "test_tool_use_failed_error_streaming.yaml", 1)
    client, _ = player(row)
    deltas, reply = streamed(client, request_of(row))
    (call,) = reply.tool_calls
    assert call.name.startswith("get_something")
    json.loads(call.arguments)
    pieces = [c for d in deltas for c in d.calls]
    assert [p.name for p in pieces] == [call.name, None]
    assert reply.choices[0].reasoning.startswith("We")
    assert reply.report.prompt_tokens == 304
    assert not reply.report.cached_known, "Groq's usage says nothing of a cache here"


@pytest.mark.parametrize(
    ("url", "cassette", "cached"),
    [
        ("api.deepseek.com", "test_deepseek_model_thinking_stream", 0),
        ("api.z.ai", "test_zai_thinking_stream", 0),
        ("openrouter.ai", "test_openrouter_stream_with_reasoning", 0),
        ("api.mistral.ai", "test_mistral_model_thinking", None),
    ],
)
def test_streamed_reasoning_under_each_of_its_names(
    recorded: list[dict[str, Any]], url: str, cassette: str, cached: int | None
) -> None:
    row = pick(recorded, url, cassette)
    client, _ = player(row)
    _, reply = streamed(client, request_of(row))
    choice = reply.choices[0]
    assert choice.text
    assert choice.reasoning or url == "openrouter.ai"
    assert "thinking" not in choice.text[:40]
    assert reply.report.cached_known is (cached is not None)
    assert asyncio.run(astreamed(client, request_of(row))) == reply
    consistent(reply.report)


def test_an_error_within_a_stream(recorded: list[dict[str, Any]]) -> None:
    row = pick(recorded, "api.groq.com", "test_tool_use_failed_error_streaming_with_text")
    client, _ = player(row)
    got = []
    with pytest.raises(e.InvalidCall, match="did not call a tool") as found:
        for delta in client.stream(request_of(row)):
            got.append(delta)
    assert got and found.value.status == 400 and found.value.code == "tool_use_failed"


# -- what is sent --------------------------------------------------------------------------------


def answer(usage: dict[str, Any] | None = None, **more: Any) -> Handler:
    """A server that always says OK."""

    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        said = {"role": "assistant", "content": "OK"}
        if not body.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            return httpx.Response(200, json={"choices": [choice], "usage": usage, **more})
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage, **more},
        ]
        lines = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"
        return httpx.Response(200, content=lines.encode())

    return handler


def sent_by(request: Any, url: str = "https://llm.example/v1", **options: Any) -> dict[str, Any]:
    bodies: list[dict[str, Any]] = []

    def handler(asked: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(asked.content))
        return answer({"prompt_tokens": 9, "completion_tokens": 1})(asked)

    client_of(handler, url=url, **options).send(request)
    return bodies[0]


def test_only_openai_s_fields_and_no_marks() -> None:
    request = ChatRequest(
        messages=[
            {"role": "system", "content": [static("You help."), volatile("It is 12:03.")]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
                    volatile("now"),
                ],
            },
        ],
        tools=[TOOL],
        tool_choice="any",
        parallel_tool_calls=False,
        response_format={"type": "json_object"},
        params=SamplingParams(
            temperature=0, max_tokens=4, min_tokens=1, stop=("x",), seed=1, n=2, logprobs=2
        ),
        session="s",
    )
    body = sent_by(request)
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You help.It is 12:03."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "now"},
                ],
            },
        ],
        "tools": [TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "logprobs": True,
        "top_logprobs": 2,
        "max_tokens": 4,
        "temperature": 0,
        "seed": 1,
        "n": 2,
        "stop": ["x"],
    }


def test_a_session_is_a_cache_key_for_openai_or_when_asked() -> None:
    request = replace(REQUEST, session="s")
    assert "prompt_cache_key" not in sent_by(request)
    assert sent_by(request, prompt_cache_key=True)["prompt_cache_key"] == "s"
    openai = sent_by(request, url="https://api.openai.com/v1")
    assert openai["prompt_cache_key"] == "s"
    assert openai["max_completion_tokens"] == 4 and "max_tokens" not in openai
    off = sent_by(request, url="https://api.openai.com/v1", prompt_cache_key=False)
    assert "prompt_cache_key" not in off
    assert sent_by(REQUEST, extra_body={"top_k": 3})["top_k"] == 3


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"params": SamplingParams(top_k=3)}, "top_k"),
        ({"params": SamplingParams(min_tokens=2)}, "min_tokens"),
        ({"params": SamplingParams(stop_token_ids=(1,))}, "stop_token_ids"),
        ({"params": SamplingParams(grammar=Grammar("regex", "a"))}, "grammar"),
        ({"salt": "x"}, "salt"),
        ({"template_kwargs": {"a": 1}}, "template_kwargs"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"auto_policy": "score"}, "auto_policy"),
    ],
)
def test_what_the_protocol_cannot_say_is_refused(change: dict[str, Any], param: str) -> None:
    client = client_of(answer({"prompt_tokens": 9}))
    with pytest.raises(e.NotSupported) as found:
        client.send(replace(REQUEST, **change))
    assert found.value.param == param
    with pytest.raises(e.NotSupported):
        list(client.stream(replace(REQUEST, **change)))


def test_a_prefill_asks_for_one_token_and_keeps_it_to_itself() -> None:
    request = replace(
        REQUEST, params=SamplingParams(temperature=0, max_tokens=0), add_generation_prompt=False
    )
    assert sent_by(request)["max_tokens"] == 1
    client = client_of(answer({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}))
    reply = client.send(request)
    assert reply.text == "" and reply.report.cached_tokens == 4
    (last,) = client.stream(request)
    assert last.reply is not None and last.reply.text == "" and last.reply.report == reply.report


def test_raw_prompts() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/completions"
        choice = {"index": 0, "text": "there", "finish_reason": "stop"}
        return httpx.Response(200, json={"choices": [choice], "usage": {"prompt_tokens": 3}})

    reply = client_of(handler).send(TextRequest(prompt="Hello "))
    assert reply.text == "there"
    assert [(s.name, s.tokens) for s in reply.report.segments] == [("prompt", 3)]


# -- known, zero, unknown ------------------------------------------------------------------------


def report_after(usage: dict[str, Any] | None, **more: Any) -> CacheReport:
    client = client_of(answer(usage, **more))
    whole = client.send(REQUEST).report
    _, reply = streamed(client, REQUEST)
    assert reply.report == whole
    consistent(whole)
    return whole


def test_null_zero_and_absent_are_three_facts() -> None:
    base = {"prompt_tokens": 20, "completion_tokens": 1}
    silent: list[dict[str, Any]] = [
        {"prompt_tokens_details": None},
        {},
        {"prompt_tokens_details": {}},
    ]
    for details in silent:
        report = report_after({**base, **details})
        assert not report.cached_known and report.cached_tokens == 0
        assert report.to_dict()["cached_tokens"] is None
        assert report.miss and "what it reused" in (report.miss.detail or "")
    zero = report_after({**base, "prompt_tokens_details": {"cached_tokens": 0}})
    assert zero.cached_known and zero.to_dict()["cached_tokens"] == 0
    some = report_after({**base, "prompt_cache_hit_tokens": 12, "prompt_cache_miss_tokens": 8})
    assert some.cached_tokens == 12 and some.reason == "unknown"


def test_llama_cpp_says_it_beside_the_usage() -> None:
    timings = {
        "cache_n": 236,
        "prompt_n": 1,
        "prompt_ms": 30.958,
        "predicted_n": 35,
        "predicted_ms": 661.064,
    }
    report = report_after({"prompt_tokens": 237, "completion_tokens": 35}, timings=timings)
    assert (report.cached_tokens, report.prompt_tokens) == (236, 237)
    assert report.ms == {"prefill": 30.958, "decode": 661.064}
    bare = report_after(None, timings=timings)
    assert (bare.cached_tokens, bare.prompt_tokens, bare.completion_tokens) == (236, 237, 35)


def test_sglang_leaves_a_zero_out_once_it_reports() -> None:
    said: list[dict[str, Any]] = [
        {"prompt_tokens": 20},
        {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 16}},
        {"prompt_tokens": 20, "prompt_tokens_details": None},
    ]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m", "owned_by": "sglang"}]})
        return answer(said.pop(0))(request)

    client = HttpClient(
        "http://llm", http_client=httpx.Client(transport=httpx.MockTransport(handler))
    )
    reports = [client.send(REQUEST).report for _ in range(3)]
    assert [(r.cached_known, r.cached_tokens) for r in reports] == [
        (False, 0),
        (True, 16),
        (True, 0),
    ]


def test_the_split_follows_the_order_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    request = ChatRequest(
        messages=[
            {"role": "system", "content": [static("Be kind. " * 40, name="rules")]},
            {"role": "user", "content": "First " * 20},
            {"role": "assistant", "content": None, "tool_calls": [_call("1", "find_order")]},
            {"role": "tool", "tool_call_id": "1", "content": "found " * 10},
            {"role": "user", "content": "Second " * 20},
        ],
        tools=[TOOL],
    )
    for known in (None, splitting.encoding()):
        monkeypatch.setattr(splitting, "encoding", lambda known=known: known)
        uses = splitting.split(request, 401, 200)
        assert [u.name for u in uses] == [
            "tools",
            "rules",
            "messages[1]",
            "messages[2]",
            "messages[3]",
            "messages[4]",
        ]
        assert [u.kind for u in uses][:3] == ["tools", "instructions", "history"]
        assert uses[-1].kind == "question" and uses[1].stability == "build"
        assert sum(u.tokens for u in uses) == 401 and sum(u.cached for u in uses) == 200
        assert uses[0].cached == uses[0].tokens and uses[-1].cached == 0
        assert uses[1].tokens > uses[2].tokens > uses[3].tokens > 0
    assert splitting.split(request, 0, 0) == ()


def _call(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


# -- finding out ---------------------------------------------------------------------------------


def test_a_server_is_asked_once_and_openai_never() -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if request.url.path.endswith("/models"):
            cards = [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]
            return httpx.Response(200, json={"data": cards})
        return answer({"prompt_tokens": 3})(request)

    transport = httpx.MockTransport(handler)
    client = HttpClient("http://llm", http_client=httpx.Client(transport=transport))
    client.send(REQUEST)
    list(client.stream(REQUEST))
    assert asked == ["/v1/models", "/v1/chat/completions", "/v1/chat/completions"]
    assert client.context_window() == 4096 and len(asked) == 3
    asked.clear()
    openai = HttpClient("https://api.openai.com", http_client=httpx.Client(transport=transport))
    openai.send(REQUEST)
    given = HttpClient(
        "http://llm", dialect="openai", http_client=httpx.Client(transport=transport)
    )
    given.send(REQUEST)
    assert asked == ["/v1/chat/completions"] * 2
    with pytest.raises(ValueError, match="dialect"):
        HttpClient("http://llm", dialect="anthropic")  # type: ignore[arg-type]


def test_a_versioned_address_is_kept() -> None:
    paths: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        paths.append(str(request.url))
        return answer({"prompt_tokens": 3})(request)

    for url in ("https://a.b/api/paas/v4", "https://a.b/openai/v1/", "https://a.b"):
        client_of(handler, url=url, dialect="openai").send(REQUEST)
    assert paths == [
        "https://a.b/api/paas/v4/chat/completions",
        "https://a.b/openai/v1/chat/completions",
        "https://a.b/v1/chat/completions",
    ]


def test_a_refused_question_is_asked_again() -> None:
    status = [401, 200]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/models"):
            code = status.pop(0)
            return httpx.Response(code, json={"data": [{"id": "m", "owned_by": "agentkv"}]})
        body = json.loads(request.content)
        if "agentkv" not in body:
            return httpx.Response(401, json={"error": {"message": "no key"}})
        return answer({"prompt_tokens": 3})(request)

    client = HttpClient(
        "http://llm", http_client=httpx.Client(transport=httpx.MockTransport(handler))
    )
    with pytest.raises(e.AuthenticationFailed, match="no key"):
        client.send(replace(REQUEST, session="s"))
    assert client.send(replace(REQUEST, session="s")).text == "OK"


# -- counting ------------------------------------------------------------------------------------


def test_counting_with_the_server_s_tokenizer_or_about() -> None:
    def vllm(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert body["model"] == "m" and "agentkv" not in json.dumps(body)
        ids = list(range(7))
        return httpx.Response(200, json={"count": 7, "max_model_len": 9, "tokens": ids})

    messages = [{"role": "user", "content": [static("word " * 100)]}]
    assert client_of(vllm).count(messages, [TOOL]) == 7
    assert client_of(vllm).encode("abc") == list(range(7))

    def nothing(request: httpx.Request) -> httpx.Response:
        return httpx.Response(404, json={"detail": "Not Found"})

    about = client_of(nothing).count(messages)
    assert 90 <= about <= 150
    assert client_of(nothing).count(messages, [TOOL]) > about


def test_encoding_without_any_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.client import http

    monkeypatch.setattr(http, "encoding", lambda: None)
    with pytest.raises(e.NotSupported, match="tokenizer"):
        client_of(lambda r: httpx.Response(404)).encode("abc")


def test_the_estimate_loads_nothing_over_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    splitting.encoding.cache_clear()
    try:
        assert splitting.encoding() is None
    finally:
        splitting.encoding.cache_clear()
    monkeypatch.setattr(splitting, "encoding", lambda: None)
    assert splitting.tokens_of("abcd" * 5) == 5
    assert splitting.tokens_of("世界") == 1.5


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "x", "code": "context_length_exceeded"}}),
        (
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 4096 tokens. However, ...",
                    "type": "BadRequestError",
                    "code": 400,
                }
            },
        ),
        (
            400,
            {"object": "error", "message": "Input is longer than the model's context length (9)"},
        ),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 99,
                    "n_ctx": 64,
                }
            },
        ),
    ],
)
def test_an_overflow_in_each_server_s_words(status: int, body: dict[str, Any]) -> None:
    client = client_of(lambda r: httpx.Response(status, json=body))
    with pytest.raises(e.ContextOverflow) as found:
        client.send(REQUEST)
    if "n_ctx" in body.get("error", {}):
        assert (found.value.limit, found.value.prompt_tokens) == (64, 99)


def test_errors_in_other_shapes_keep_their_words() -> None:
    shapes: list[dict[str, Any]] = [
        {"error": "model is on fire"},
        {"object": "error", "message": "model is on fire", "code": 400},
        {"detail": "model is on fire"},
    ]
    for shape in shapes:
        client = client_of(lambda r, shape=shape: httpx.Response(400, json=shape))  # type: ignore[misc]
        with pytest.raises(e.InvalidCall, match="on fire"):
            client.send(REQUEST)
