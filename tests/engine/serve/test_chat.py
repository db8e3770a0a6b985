"""`/v1/chat/completions`: shapes, streams, sampling options, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"
HI: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi there"}],
    "max_tokens": 12,
    "temperature": 0,
}


def joined(events: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(
        c["delta"].get("content", "") for e in events for c in e["choices"] if c["index"] == index
    )


def test_a_whole_reply(tiny: Live) -> None:
    response = tiny.post(CHAT, {**HI, "model": "tiny", "store": True})
    assert response.status_code == 200
    reply = response.json()
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "tiny"
    assert reply["id"].startswith("chatcmpl-")
    assert reply["system_fingerprint"].startswith("fp_")
    (choice,) = reply["choices"]
    assert choice["index"] == 0
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    assert "token_ids" not in choice and "prompt_token_ids" not in reply
    usage = reply["usage"]
    assert usage["completion_tokens"] == 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + 12
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    block = usage["agentkv"]
    assert block["page_size"] == 1 and block["schema"] == 1
    assert block["cached_by_tier"] == {"device": 0, "host": 0, "disk": 0}
    assert set(block["ms"]) == {"queue", "prefill", "ttft", "decode"}
    assert sum(s["tokens"] for s in block["segments"]) == usage["prompt_tokens"]
    assert block["segments"][-2]["kind"] == "question"
    assert response.headers["x-agentkv-ignored"] == "store"
    assert response.headers["x-agentkv-cached-tokens"] == "0"
    assert response.headers["x-agentkv-prompt-tokens"] == str(usage["prompt_tokens"])
    assert response.headers["x-agentkv-miss-reason"] == block["miss"]["reason"]


def test_a_stream_has_the_documented_order_and_the_same_text(tiny: Live) -> None:
    whole = tiny.post(CHAT, HI).json()
    events, headers = tiny.stream_with_headers(
        CHAT, {**HI, "stream_options": {"include_usage": True}}
    )
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-2]["choices"][0]["delta"] == {}
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1]["choices"] == []
    assert all(e["usage"] is None for e in events[:-1])
    finishes = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
    assert finishes == ["length"]
    assert {e["id"] for e in events} == {events[0]["id"]}
    assert joined(events) == whole["choices"][0]["message"]["content"]
    warm, cold = events[-1]["usage"], whole["usage"]
    assert warm["prompt_tokens"] == cold["prompt_tokens"]
    assert warm["completion_tokens"] == cold["completion_tokens"]
    # The same prompt again: all but the last token came out of the cache, and the text is equal.
    assert warm["prompt_tokens_details"]["cached_tokens"] == cold["prompt_tokens"] - 1
    assert headers["x-agentkv-cached-tokens"] == str(cold["prompt_tokens"] - 1)

    plain = tiny.stream(CHAT, HI)
    assert all("usage" not in e for e in plain)
    assert all(e["choices"] for e in plain)


def test_n_choices_share_a_prompt_and_keep_their_index(tiny: Live) -> None:
    ask = {**HI, "n": 3, "temperature": 1.0, "seed": 5}
    whole = tiny.post(CHAT, ask).json()
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
    texts = [c["message"]["content"] for c in whole["choices"]]
    assert len(set(texts)) > 1
    assert whole["usage"]["completion_tokens"] == 36
    events = tiny.stream(CHAT, {**ask, "stream_options": {"include_usage": True}})
    assert [joined(events, i) for i in range(3)] == texts
    for i in range(3):
        mine = [c for e in events for c in e["choices"] if c["index"] == i]
        assert mine[0]["delta"]["role"] == "assistant"
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["length"]
    assert events[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert tiny.post(CHAT, ask).json()["choices"] == whole["choices"], "a seed repeats"
    greedy = tiny.post(CHAT, {**HI, "n": 2}).json()["choices"]
    assert greedy[0]["message"] == greedy[1]["message"]


def test_logprobs_have_bytes_and_no_infinity(tiny: Live) -> None:
    ask = {**HI, "logprobs": True, "top_logprobs": 3}
    reply = tiny.post(CHAT, ask)
    content = reply.json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 12
    for entry in content:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] == pytest.approx(entry["logprob"])
        assert -9999 <= entry["logprob"] <= 0
        try:
            assert bytes(entry["bytes"]).decode() == entry["token"]
        except UnicodeDecodeError:
            assert entry["token"].startswith("bytes:\\x")
    streamed = [
        entry
        for event in tiny.stream(CHAT, ask)
        for choice in event["choices"]
        for entry in (choice["logprobs"] or {}).get("content", ())
    ]
    assert streamed == content
    bare = tiny.post(CHAT, {**HI, "logprobs": True}).json()["choices"][0]["logprobs"]["content"]
    assert all(entry["top_logprobs"] == [] for entry in bare)


def test_token_ids_on_request(tiny: Live) -> None:
    ask = {**HI, "return_token_ids": True}
    whole = tiny.post(CHAT, ask).json()
    ids = whole["choices"][0]["token_ids"]
    assert len(ids) == 12
    assert len(whole["prompt_token_ids"]) == whole["usage"]["prompt_tokens"]
    events = tiny.stream(CHAT, ask)
    assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert all("prompt_token_ids" not in e for e in events[1:])
    assert [i for e in events for c in e["choices"] for i in c["token_ids"]] == ids
    # The ids are the prompt: sent back as ids, they hit, and go on in the same way.
    again = tiny.post(
        "/v1/completions",
        {"prompt": whole["prompt_token_ids"], "max_tokens": 12, "temperature": 0}
        | {"return_token_ids": True},
    ).json()
    assert again["choices"][0]["token_ids"] == ids
    assert again["usage"]["prompt_cache_hit_tokens"] == whole["usage"]["prompt_tokens"] - 1


def test_max_tokens_and_the_window(tiny: Live) -> None:
    both = tiny.post(CHAT, {**HI, "max_tokens": 3, "max_completion_tokens": 5}).json()
    assert both["usage"]["completion_tokens"] == 5
    events = tiny.stream(CHAT, {**HI, "max_tokens": 1})
    assert [c["finish_reason"] for e in events for c in e["choices"]][-1] == "length"
    over = tiny.post(CHAT, {**HI, "max_tokens": 2048})
    error = over.json()["error"]
    assert over.status_code == 400
    assert error["code"] == "context_length_exceeded"
    assert error["type"] == "invalid_request_error"
    assert error["n_ctx"] == 2048
    assert error["n_prompt_tokens"] == both["usage"]["prompt_tokens"]
    assert error["message"].startswith("This model's maximum context length is 2048 tokens.")
    # The same in a stream: a status, not a broken stream.
    assert tiny.post(CHAT, {**HI, "max_tokens": 2048, "stream": True}).status_code == 400
    huge = [{"role": "user", "content": "x" * 3_000_000}]
    error = tiny.post(CHAT, {"messages": huge}).json()["error"]
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("change", "status", "code", "param"),
    [
        ({"model": "gpt-4"}, 404, "model_not_found", "model"),
        ({"messages": []}, 400, "invalid_value", "messages"),
        ({"messages": [{"role": "judge", "content": "x"}]}, 400, None, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            400,
            None,
            "messages",
        ),
        ({"n": 17}, 400, "invalid_value", "n"),
        ({"temperature": -0.1}, 400, "invalid_value", "temperature"),
        ({"cache_salt": ""}, 400, "invalid_value", "cache_salt"),
        ({"tools": [{}] * 257}, 400, "invalid_value", "tools"),
        ({"chat_template_kwargs": {"tokenize": True}}, 400, None, "chat_template_kwargs"),
        ({"response_format": {"type": "yaml"}}, 400, "invalid_value", "response_format"),
        ({"tool_choice": "required"}, 400, "invalid_value", "tool_choice"),
        ({"structured_outputs": {"regex": "a"}}, 400, "unsupported_parameter", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusals(
    tiny: Live, change: dict[str, Any], status: int, code: str | None, param: str, stream: bool
) -> None:
    reply = tiny.post(CHAT, {**HI, **change, "stream": stream})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert code is None or error["code"] == code
    assert param is None or error["param"] == param
    if status == 404:
        assert "tiny" in error["message"]


def test_stream_options_need_a_stream(tiny: Live) -> None:
    for path, body in ((CHAT, HI), ("/v1/completions", {"prompt": "a"})):
        reply = tiny.post(path, {**body, "stream_options": {"include_usage": True}})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "stream_options"


def test_what_other_clients_add_to_messages_is_no_obstacle(tiny: Live) -> None:
    part = {"type": "text", "text": "hi there", "cache_control": {"type": "ephemeral"}}
    plain = tiny.post(CHAT, {**HI, "return_token_ids": True}).json()
    messages = [{"role": "user", "content": [part]}]
    blocks = tiny.post(CHAT, {**HI, "messages": messages, "return_token_ids": True}).json()
    assert blocks["prompt_token_ids"] == plain["prompt_token_ids"]


def test_tools_are_rendered_and_stay_with_tool_choice_none(tiny: Live) -> None:
    tool = {"type": "function", "function": {"name": "find_order", "parameters": {}}}
    shown = tiny.post(CHAT, {**HI, "tools": [tool], "return_token_ids": True}).json()
    none = tiny.post(
        CHAT, {**HI, "tools": [tool], "tool_choice": "none", "return_token_ids": True}
    ).json()
    assert none["prompt_token_ids"] == shown["prompt_token_ids"]
    text = tiny.post("/detokenize", {"tokens": shown["prompt_token_ids"]}).json()["prompt"]
    assert "find_order" in text
    kinds = [s["kind"] for s in shown["usage"]["agentkv"]["segments"]]
    assert "tools" in kinds


def test_salts_and_tenants_share_nothing(
    tiny: Live, serve: Callable[..., Live], tiny_engine: Any
) -> None:
    def hit(live: Live, salt: str | None, key: str = "") -> int:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        extra = {"cache_salt": salt} if salt else {}
        reply = live.post(CHAT, {**HI, **extra}, headers=headers).json()
        return int(reply["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert [hit(tiny, "a"), hit(tiny, "b"), hit(tiny, None)] == [0, 0, 0]
    assert hit(tiny, "a") > 0 and hit(tiny, "b") > 0 and hit(tiny, None) > 0
    shared = serve(tiny_engine, api_keys=("one", "two"))
    tiny_engine.flush()
    assert [hit(shared, None, "one"), hit(shared, None, "two")] == [0, 0]
    assert hit(shared, None, "one") > 0 and hit(shared, None, "two") > 0


def test_a_session_tells_what_changed(tiny: Live) -> None:
    def ask(text: str, **how: Any) -> dict[str, Any]:
        messages = [{"role": "system", "content": text}, HI["messages"][0]]
        headers = how.pop("headers", {})
        reply = tiny.post(CHAT, {**HI, "messages": messages, **how}, headers=headers).json()
        block: dict[str, Any] = reply["usage"]["agentkv"]
        return block

    for how in (
        {"agentkv": {"session": "s1"}},
        {"prompt_cache_key": "s2"},
        {"headers": {"x-agentkv-session": "s3"}},
        {"user": "s4"},
    ):
        name = str(how)
        ask(f"{name} The clock says 10:00.", **dict(how))
        block = ask(f"{name} The clock says 10:01.", **dict(how))
        assert block["miss"]["reason"] == "text_changed"
        assert block["miss"]["segment"] == "messages[0]"


def test_the_text_of_another_client_is_quoted_to_nobody(tiny: Live) -> None:
    """Without a session a call is compared with the most similar one, whoever sent that."""

    def ask(secret: str, **more: Any) -> dict[str, Any]:
        system = {"role": "system", "content": f"The code word is {secret}. Never tell it."}
        body = {**HI, "messages": [system, *HI["messages"]], "max_tokens": 1, **more}
        found: dict[str, Any] = tiny.post(CHAT, body).json()["usage"]["agentkv"]["miss"]
        return found

    ask("aardvark")
    stranger = ask("zebra")
    assert stranger["reason"] == "text_changed" and stranger["was"] is None
    ask("walrus", agentkv={"session": "mine"})
    own = ask("badger", agentkv={"session": "mine"})
    assert "walrus" in own["was"] and "badger" in own["now"]
