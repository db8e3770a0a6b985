"""Reports of users of other servers, as tests; the numbers are those of the project's bug log."""

from __future__ import annotations

import asyncio
import json
import random
import re
import string
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
BODIES: dict[str, Callable[[str], dict[str, Any]]] = {
    CHAT: lambda text: {"messages": [{"role": "user", "content": text}]},
    TEXT: lambda text: {"prompt": text},
}
WITH_USAGE = {"stream_options": {"include_usage": True}}


def letters(live: Live, allowed: str = string.ascii_lowercase) -> dict[str, float]:
    """A logit bias that leaves only these one-token characters."""
    ids = [live.post("/tokenize", {"prompt": c}).json()["tokens"] for c in allowed]
    assert all(len(i) == 1 for i in ids)
    return {str(i[0]): 100.0 for i in ids}


def text_of(events: Iterable[dict[str, Any]]) -> str:
    return "".join(
        c["text"] if "text" in c else c["delta"].get("content", "")
        for e in events
        for c in e["choices"]
    )


def test_b010_an_impossible_request_is_refused_at_once_and_the_rest_finish(
    make_engine: Callable[..., Any], serve: Callable[..., Live]
) -> None:
    live = serve(make_engine(threads=1, pool_tokens=512))
    rng = random.Random(1)

    def ask(length: int) -> tuple[httpx.Response, float]:
        prompt = [rng.randrange(10, 200) for _ in range(length)]
        began = time.monotonic()
        body = {"prompt": prompt, "max_tokens": 40, "ignore_eos": True}
        return live.post(TEXT, body), time.monotonic() - began

    with ThreadPoolExecutor(8) as pool:
        long = [pool.submit(ask, 300) for _ in range(6)]
        impossible = pool.submit(ask, 600)
        reply, seconds = impossible.result(30)
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "kv_pool_too_small"
        assert reply.json()["error"]["needed_pages"] > reply.json()["error"]["total_pages"] == 512
        assert not all(f.done() for f in long) or seconds < 1
        for future in long:
            done, _ = future.result(60)
            assert done.status_code == 200
            assert done.json()["usage"]["completion_tokens"] == 40
    live.until_idle()


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("size", [25, 1500])
def test_b026_b028_cached_tokens_is_an_integer_and_equal_in_all_four(
    tiny: Live, path: str, size: int
) -> None:
    text = "".join(random.Random(size).choices(string.ascii_lowercase + " ", k=size))
    body = {**BODIES[path](text), "max_tokens": 2, "temperature": 0}
    replies: list[tuple[dict[str, Any], str]] = []
    for _ in range(2):
        whole = tiny.post(path, body)
        replies.append((whole.json()["usage"], whole.headers["x-agentkv-cached-tokens"]))
    events, headers = tiny.stream_with_headers(path, {**body, **WITH_USAGE})
    replies.append((events[-1]["usage"], headers["x-agentkv-cached-tokens"]))
    tiny.post("/flush_cache", {})
    events, headers = tiny.stream_with_headers(path, {**body, **WITH_USAGE})
    replies.append((events[-1]["usage"], headers["x-agentkv-cached-tokens"]))
    # Without include_usage there is no usage, but the header still tells.
    plain, headers = tiny.stream_with_headers(path, body)
    assert all("usage" not in e for e in plain)
    prompt = replies[0][0]["prompt_tokens"]
    assert headers["x-agentkv-cached-tokens"] == str(prompt - 1)
    expected = [0, prompt - 1, prompt - 1, 0]
    for (usage, header), cached in zip(replies, expected, strict=True):
        found = usage["prompt_tokens_details"]["cached_tokens"]
        assert type(found) is int
        assert found == cached == int(header)
        assert usage["prompt_tokens"] == prompt


def test_b029_cached_and_written_tokens_are_parts_of_the_prompt(
    make_engine: Callable[..., Any], serve: Callable[..., Live]
) -> None:
    for page_size in (1, 16):
        live = serve(make_engine(threads=1, page_size=page_size))
        for length in (15, 16, 17, 32, 33):
            ids = [40 + length] * length
            for _ in range(3):
                usage = live.post(TEXT, {"prompt": ids, "max_tokens": 1}).json()["usage"]
                details = usage["prompt_tokens_details"]
                cached, written = details["cached_tokens"], details["cache_write_tokens"]
                assert usage["prompt_tokens"] - cached >= 1, "the last token is always computed"
                assert usage["prompt_tokens"] - cached - written >= 0
                assert (
                    usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"]
                    == usage["prompt_tokens"]
                )
                assert usage["total_tokens"] == usage["prompt_tokens"] + 1
            if page_size == 1:
                assert cached == length - 1


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_b031_streams_fill_the_cache(tiny: Live, path: str) -> None:
    prefix = "".join(random.Random(5).choices("bcdfg", k=1200))

    def cached(tail: str, stream: bool) -> int:
        body = {**BODIES[path](prefix + tail), "max_tokens": 2, "temperature": 0}
        if stream:
            usage = tiny.stream(path, {**body, **WITH_USAGE})[-1]["usage"]
        else:
            usage = tiny.post(path, body).json()["usage"]
        return int(usage["prompt_cache_hit_tokens"])

    assert cached(" one", True) == 0
    hits = [cached(" two", True), cached(" six", False), cached(" ten", True)]
    assert min(hits) >= 1200


HOSTILE = "a\u0085b\u2028c\u2029d\r\ne\x00f\ng\rh\x0b\x0c\x1c\x1e你好😀👩\u200d👩\u200d👧"


def _by_bytes(live: Live, body: dict[str, Any]) -> str:
    """A reader that gets one byte at a time, and knows only what the standard says of lines."""
    with (
        live.client() as client,
        client.stream("POST", TEXT, json={**body, "stream": True}) as reply,
    ):
        buffer, text = b"", ""
        for piece in reply.iter_raw():
            for i in range(len(piece)):
                buffer += piece[i : i + 1]
                if buffer.endswith(b"\n\n"):
                    line = buffer[:-2].decode("utf-8")
                    buffer = b""
                    if line.startswith("data: ") and line != "data: [DONE]":
                        text += text_of([json.loads(line[6:])])
    assert buffer == b""
    return text


def _by_unicode_lines(live: Live, body: dict[str, Any]) -> str:
    """A reader that splits where `str.splitlines` does: at U+0085 and U+2028 too."""
    with (
        live.client() as client,
        client.stream("POST", TEXT, json={**body, "stream": True}) as reply,
    ):
        whole = reply.read().decode("utf-8")
    lines = [x[6:] for x in whole.splitlines() if x.startswith("data: ") and x[6:] != "[DONE]"]
    return text_of(json.loads(x) for x in lines)


def _by_openai(live: Live, body: dict[str, Any]) -> str:
    with openai.OpenAI(base_url=live.url + "/v1", api_key="x") as client:
        chunks = client.completions.create(
            model="tiny", stream=True, extra_body=body, prompt=body["prompt"]
        )
        return "".join(c.choices[0].text for c in chunks)


def test_b032_every_reader_gets_the_same_text(tiny: Live) -> None:
    body = {"prompt": HOSTILE, "echo": True, "max_tokens": 24, "temperature": 0}
    expected = tiny.post(TEXT, body).json()["choices"][0]["text"]
    assert expected.startswith(HOSTILE)
    assert _by_bytes(tiny, body) == expected
    assert _by_unicode_lines(tiny, body) == expected
    assert _by_openai(tiny, body) == expected
    assert text_of(tiny.stream(TEXT, body)) == expected
    # Generated, not echoed: the one-byte ones among them.
    for char in ("\r", "\n", "\x00", "\x1c"):
        forced = {**body, "echo": False, "max_tokens": 4, "logit_bias": letters(tiny, char)}
        assert _by_bytes(tiny, forced) == _by_unicode_lines(tiny, forced) == char * 4


def test_b034_nothing_of_a_stop_string_is_emitted(tiny: Live) -> None:
    base = {"prompt": "abc", "max_tokens": 60, "seed": 11, "logit_bias": letters(tiny)}
    text = tiny.post(TEXT, base).json()["choices"][0]["text"]
    assert len(text) == 60 and re.fullmatch("[a-z]+", text)
    assert len(set(text)) > 5
    for stops in (
        [text[7:14]],
        [text[20:22] + "!", text[20:27]],
        [text[9:12], text[9:15], text[8:13]],
        [text[30:58]],
        [text[0:3]],
        [text[58:] + "q"],
        ["\nUser:", "beta gamma"],
    ):
        # The one that is complete first ends the text; of two at once, the longer.
        ends_at = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
        cut = min(ends_at)[1] if ends_at else len(text)
        ask = {**base, "stop": stops}
        whole = tiny.post(TEXT, ask).json()["choices"][0]
        assert whole["text"] == text[:cut]
        assert whole["finish_reason"] == ("stop" if cut < len(text) else "length")
        if cut < len(text):
            assert whole["stop_reason"] in stops
        events = tiny.stream(TEXT, ask)
        assert text_of(events) == text[:cut]
        reasons = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
        assert reasons == [whole["finish_reason"]]
        kept = tiny.post(TEXT, {**ask, "include_stop_str_in_output": True}).json()["choices"][0]
        if cut < len(text):
            assert kept["text"] == text[:cut] + kept["stop_reason"]


def test_b037_no_stream_holds_text_of_another(
    make_engine: Callable[..., Any], serve: Callable[..., Live]
) -> None:
    live = serve(make_engine(threads=1))
    alphabet = string.ascii_lowercase + "234567"
    ids = {c: next(iter(letters(live, c))) for c in alphabet}
    cancel = set(random.Random(2).sample(alphabet, 16))

    async def one(client: httpx.AsyncClient, char: str) -> None:
        body = {"prompt": char * 9, "max_tokens": 60, "logit_bias": {ids[char]: 100}}
        body |= {"ignore_eos": True, **WITH_USAGE, "stream": True}
        headers = {"x-request-id": f"id-{ord(char)}"}
        for _ in range(2):
            count = 0
            async with client.stream("POST", TEXT, json=body, headers=headers) as reply:
                assert reply.headers["x-request-id"] == headers["x-request-id"]
                async for line in reply.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    chunk = json.loads(line[6:])
                    assert chunk["id"] == f"cmpl-id-{ord(char)}"
                    assert set(text_of([chunk])) <= {char}
                    count += 1
                    if char in cancel and count == 20:
                        break
                    if chunk["usage"] is not None:
                        assert chunk["usage"]["prompt_tokens"] == 9
                        assert chunk["usage"]["prompt_cache_hit_tokens"] in (0, 8)

    async def all_of_them() -> None:
        async with httpx.AsyncClient(base_url=live.url, timeout=60) as client:
            await asyncio.gather(*(one(client, c) for c in alphabet))

    asyncio.run(all_of_them())
    live.until_idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (rb'{"messages":[{"role":"user","content":"\ud83d"}]%s}', "messages[0].content"),
        (rb'{"messages":[{"role":"user","content":"x"}],"stop":["\ude00"]%s}', "stop[0]"),
        (
            rb'{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",'
            rb'"function":{"name":"\ud83d"}}]%s}',
            "tools[0].function.name",
        ),
    ],
)
def test_b041_a_lone_surrogate_is_a_400(tiny: Live, body: bytes, param: str, stream: bool) -> None:
    data = body % (b',"stream":true' if stream else b"")
    with tiny.client() as client:
        reply = client.post(CHAT, content=data, headers={"content-type": "application/json"})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == param
        assert "Traceback" not in reply.text
        pair = rb'{"messages":[{"role":"user","content":"\ud83d\ude00"}],"max_tokens":1}'
        fine = client.post(CHAT, content=pair, headers={"content-type": "application/json"})
        assert fine.status_code == 200


def test_b043_tool_calls_with_null_empty_or_missing_content_are_one_prompt(tiny: Live) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "find", "arguments": '{"q": "x"}'},
    }
    seen = []
    variants: list[dict[str, Any]] = [{"content": None}, {"content": ""}, {}, {"content": []}]
    for content in variants:
        messages = [
            {"role": "user", "content": "find x"},
            {"role": "assistant", "tool_calls": [call], **content},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "3"}]},
        ]
        body = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
        reply = tiny.post(CHAT, body)
        assert reply.status_code == 200, reply.text
        seen.append(reply.json()["prompt_token_ids"])
    assert all(ids == seen[0] for ids in seen)
    text = tiny.post("/detokenize", {"tokens": seen[0]}).json()["prompt"]
    assert "None" not in text and "null" not in text


def test_b038_one_equal_finish_reason_for_each_choice(tiny: Live) -> None:
    stop = {"stop": ["e", "t", "a", "o", "i", "n"], "logit_bias": letters(tiny)}
    for change in ({"max_tokens": 3}, {"max_tokens": 50, **stop}):
        body = {**BODIES[CHAT]("hello"), "n": 2, "seed": 4, **change}
        whole = [c["finish_reason"] for c in tiny.post(CHAT, body).json()["choices"]]
        events = tiny.stream(CHAT, body)
        ends = {
            c["index"]: c["finish_reason"]
            for e in events
            for c in e["choices"]
            if c["finish_reason"]
        }
        assert [ends[i] for i in range(2)] == whole
        assert sum(1 for e in events for c in e["choices"] if c["finish_reason"]) == 2


def test_a_step_that_fails_ends_the_stream_with_an_error(
    make_engine: Callable[..., Any],
    serve: Callable[..., Live],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = make_engine(threads=1)
    live = serve(engine)
    forward, steps = engine._core.runner.forward, [0]

    def failing(batch: Any) -> Any:
        steps[0] += 1
        if steps[0] == 5:
            raise RuntimeError("secret at 0xdeadbeef")
        return forward(batch)

    monkeypatch.setattr(engine._core.runner, "forward", failing)
    body = {"prompt": "abc", "max_tokens": 50, "temperature": 0, "ignore_eos": True}
    with (
        live.client() as client,
        client.stream("POST", TEXT, json={**body, "stream": True}) as reply,
    ):
        lines = [x for x in reply.iter_lines() if x]
    error = json.loads(lines[-1].removeprefix("data: "))["error"]
    assert error["code"] == "internal_error"
    assert "secret" not in str(lines)
    assert len(lines) > 1
    with openai.OpenAI(base_url=live.url + "/v1", api_key="x", max_retries=0) as sdk:
        steps[0] = 0
        with pytest.raises(openai.APIError):
            list(sdk.completions.create(model="tiny", stream=True, **body_for_openai(body)))
    steps[0] = 0
    assert live.post(TEXT, body).status_code == 500
    assert live.post(TEXT, body).status_code == 200, "the engine goes on"
    live.until_idle()


def body_for_openai(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": body["prompt"],
        "max_tokens": body["max_tokens"],
        "extra_body": {"ignore_eos": body["ignore_eos"]},
    }


def test_a_slow_reader_holds_up_nobody(tiny: Live) -> None:
    slow = tiny.send(TEXT, {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True})
    tiny.until(lambda i: i["num_requests_running"] == 1)
    done = threading.Event()

    def fast() -> None:
        tiny.post(TEXT, {"prompt": "b", "max_tokens": 20})
        done.set()

    threading.Thread(target=fast).start()
    assert done.wait(20)
    slow.close()
    tiny.until_idle()
