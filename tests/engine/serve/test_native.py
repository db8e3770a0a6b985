"""The routes beyond OpenAI's: generate, tokens, information, administration, health, metrics."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


def test_generate_takes_text_or_ids(tiny: Live) -> None:
    params = {"max_new_tokens": 6, "temperature": 0}
    first = tiny.post("/generate", {"text": "the hall", "sampling_params": params}).json()
    meta = first["meta_info"]
    assert len(first["output_ids"]) == 6
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert meta["cached_tokens"] == 0
    ids = tiny.post("/tokenize", {"prompt": "the hall"}).json()["tokens"]
    again = tiny.post("/generate", {"input_ids": ids, "sampling_params": params}).json()
    assert again["output_ids"] == first["output_ids"]
    assert again["meta_info"]["cached_tokens"] == meta["prompt_tokens"] - 1
    many = tiny.post("/generate", {"text": ["the hall", "a"], "sampling_params": params}).json()
    assert many[0]["text"] == first["text"]
    assert len(many) == 2
    pair = tiny.post(
        "/generate", {"text": "a", "sampling_params": {**params, "n": 2}, "return_logprob": True}
    ).json()
    assert len(pair) == 2
    assert len(pair[0]["meta_info"]["output_token_logprobs"]) == 6
    events = tiny.stream("/generate", {"text": "the hall", "sampling_params": params})
    assert events[-1]["text"] == first["text"]
    assert events[-1]["output_ids"] == first["output_ids"]
    assert events[-1]["meta_info"]["finish_reason"]["type"] == "length"
    assert events[-1]["meta_info"]["cached_tokens"] == meta["prompt_tokens"] - 1
    scored = tiny.post(
        "/generate",
        {"input_ids": ids, "sampling_params": params}
        | {"return_logprob": True, "logprob_start_len": 0},
    ).json()
    assert len(scored["meta_info"]["input_token_logprobs"]) == len(ids)
    for bad in ({}, {"text": "a", "input_ids": [1]}, {"text": "a", "sampling_params": {"n": 99}}):
        assert tiny.post("/generate", bad).status_code == 400


def test_tokens_there_and_back(tiny: Live) -> None:
    text = "the 你好 <|im_end|> 😀"
    reply = tiny.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    assert reply["count"] == len(reply["tokens"]) == len(reply["token_strs"])
    assert reply["max_model_len"] == 2048
    back = tiny.post("/detokenize", {"tokens": reply["tokens"]}).json()
    assert back["prompt"] == back["content"] == text
    literal = tiny.post("/tokenize", {"content": text, "parse_special": False}).json()
    assert literal["count"] > reply["count"]
    assert tiny.post("/detokenize", {"tokens": literal["tokens"]}).json()["prompt"] == text
    assert tiny.post("/detokenize", {"tokens": [10**9]}).json()["error"]["param"] == "tokens"
    assert tiny.post("/tokenize", {}).json()["error"]["param"] == "prompt"
    chat = tiny.post("/tokenize", {"messages": HI}).json()
    template = tiny.post("/apply-template", {"messages": HI}).json()
    assert template["token_ids"] == chat["tokens"]
    assert "<|im_start|>user\nhi<|im_end|>" in template["prompt"]
    assert template["spans"][0]["start"] == 0
    assert template["spans"][-1]["end"] == chat["count"]
    reply = tiny.post(CHAT, {"messages": HI, "max_tokens": 1, "return_token_ids": True}).json()
    assert reply["prompt_token_ids"] == chat["tokens"]
    for path in ("/tokenize", "/detokenize", "/apply-template"):
        body = {"messages": HI, "tokens": [1], "model": "other"}
        assert tiny.post(path, body).status_code == 404


def test_models(tiny: Live) -> None:
    data = tiny.get("/v1/models").json()["data"]
    assert [m["id"] for m in data] == ["tiny"]
    assert data[0]["max_model_len"] == data[0]["meta"]["n_ctx"] == 2048
    assert tiny.get("/v1/models/tiny").json() == data[0]
    missing = tiny.get("/v1/models/org/other")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert "org/other" in missing.json()["error"]["message"]


def test_information(tiny: Live) -> None:
    for _ in range(2):
        assert tiny.post(CHAT, {"messages": HI, "max_tokens": 2}).status_code == 200
    info = tiny.get("/server_info").json()
    assert tiny.get("/get_server_info").status_code == 200
    assert 0 < info["cache_hit_rate"] < 1
    assert info["cache_hit_rate"] == pytest.approx(
        sum(info["cached_tokens_total"].values()) / info["prompt_tokens_total"]
    )
    assert info["pool_tokens"] == info["args"]["pool_tokens"] == 8192
    assert info["free_tokens"] + info["evictable_tokens"] == 8192
    assert info["args"]["host"] == "127.0.0.1"
    model = tiny.get("/model_info").json()
    assert model == tiny.get("/get_model_info").json()
    assert model["is_generation"] is True and model["dtype"] == "float32"


def test_flush_is_a_post_and_empties(tiny: Live) -> None:
    body = {"messages": HI, "max_tokens": 2, "temperature": 0}

    def cached() -> int:
        return int(tiny.post(CHAT, body).json()["usage"]["prompt_cache_hit_tokens"])

    assert cached() == 0
    assert cached() > 0
    assert tiny.get("/flush_cache").status_code == 405
    assert cached() > 0
    assert tiny.post("/flush_cache", {}).json()["flushed_tokens"] > 0
    assert cached() == 0
    with tiny.client() as client:
        assert client.post("/flush_cache").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_abort_by_request_id(tiny: Live, stream: bool) -> None:
    replies: list[Any] = []

    def ask() -> None:
        body = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": stream}
        with tiny.client() as client:
            replies.append(
                client.post("/v1/completions", json=body, headers={"x-request-id": "mine"}).text
            )

    thread = threading.Thread(target=ask)
    thread.start()
    tiny.until(lambda i: i["num_requests_running"] == 1)
    assert tiny.post("/abort_request", {}).status_code == 400
    assert tiny.post("/abort_request", {"rid": "other"}).json()["aborted"] == 0
    assert tiny.post("/abort_request", {"rid": "mine"}).json()["aborted"] == 1
    thread.join(10)
    assert '"finish_reason":"abort"' in replies[0]
    tiny.until_idle()


def test_a_key_aborts_its_own_calls_only(make_engine: Any, serve: Any) -> None:
    live = serve(make_engine(threads=1), api_keys=("key-a", "key-b"))
    a, b = ({"authorization": f"Bearer key-{name}"} for name in "ab")
    replies: list[Any] = []

    def ask() -> None:
        body = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True}
        headers = {**a, "x-request-id": "mine"}
        replies.append(live.post("/v1/completions", body, headers=headers).json())

    thread = threading.Thread(target=ask)
    thread.start()
    while not live.service.in_flight:
        assert thread.is_alive()
    for which in ({"rid": "mine"}, {"abort_all": True}):
        assert live.post("/abort_request", which, headers=b).json()["aborted"] == 0
    with live.client() as client:
        hidden = client.get("/agentkv/explain/mine", headers=b)
        assert hidden.status_code == 404 and "still running" not in hidden.text
        assert "still running" in client.get("/agentkv/explain/mine", headers=a).text
    assert live.post("/abort_request", {"abort_all": True}, headers=a).json()["aborted"] == 1
    thread.join(10)
    assert replies[0]["choices"][0]["finish_reason"] == "abort"


@pytest.mark.parametrize("stream", [False, True])
def test_abort_in_the_queue(make_engine: Any, serve: Any, stream: bool) -> None:
    live = serve(make_engine(threads=1, max_running=1))
    body = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": stream}
    running = live.send("/v1/completions", body)
    live.until(lambda i: i["num_requests_running"] == 1)
    queued = live.send("/v1/completions", {**body, "prompt": "b", **({"n": 2} if stream else {})})
    live.until(lambda i: i["num_requests_waiting"] == (2 if stream else 1))
    assert live.post("/abort_request", {"abort_all": True}).json()["aborted"] == 2
    text = b""
    while b"0\r\n\r\n" not in text if stream else b"}}" not in text:
        piece = queued.recv(65536)
        assert piece, text
        text += piece
    assert text.startswith(b"HTTP/1.1 200")
    assert text.count(b'"finish_reason":"abort"') == (2 if stream else 1)
    assert b"x-agentkv-cached-tokens: 0" in text
    live.until_idle()
    running.close()
    queued.close()


def test_health(tiny: Live) -> None:
    assert tiny.get("/health").json() == {"status": "ok"}
    assert tiny.get("/ready").json() == {"status": "ready"}
    before = tiny.get("/server_info").json()["generation_tokens_total"]
    assert tiny.get("/health_generate").status_code == 200
    assert tiny.get("/server_info").json()["generation_tokens_total"] == before + 1
    tiny.service.phase = "draining"
    reply = tiny.get("/ready")
    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "server_draining"
    assert tiny.post(CHAT, {"messages": HI}).status_code == 503
    assert tiny.get("/health").status_code == 200


def test_a_dead_engine_fails_health(make_engine: Any, serve: Any) -> None:
    engine = make_engine()
    live = serve(engine)
    engine.close()
    for stream in (False, True):
        reply = live.post(CHAT, {"messages": HI, "stream": stream})
        assert reply.status_code == 503
    assert live.get("/health").status_code == 503
    assert live.get("/metrics").status_code == 503


def test_a_full_queue_is_a_503_to_try_again(make_engine: Any, serve: Any) -> None:
    live = serve(make_engine(threads=1, max_running=1, max_queued=1))
    body = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    running = live.send("/v1/completions", body)
    live.until(lambda i: i["num_requests_running"] == 1)
    queued = live.send("/v1/completions", {**body, "prompt": "b"})
    live.until(lambda i: i["num_requests_waiting"] == 1)
    for stream in (False, True):
        reply = live.post("/v1/completions", {**body, "prompt": "c", "stream": stream})
        assert reply.status_code == 503
        assert reply.json()["error"]["code"] == "server_overloaded"
        assert reply.headers["retry-after"]
    queued.close()
    running.close()
    live.until_idle()


def test_metrics_count_tokens(tiny: Live) -> None:
    def read() -> dict[str, float]:
        reply = tiny.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [x for x in reply.text.splitlines() if x and not x.startswith("#")]
        return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines)}

    before = read()
    replies = [
        tiny.post(CHAT, {"messages": HI, "max_tokens": 3, "temperature": 0}).json()
        for _ in range(2)
    ]
    after = read()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    prompt = replies[0]["usage"]["prompt_tokens"]
    assert grown("agentkv:prompt_tokens_total") == 2 * prompt
    assert grown('agentkv:cached_tokens_total{tier="device"}') == prompt - 1
    assert grown('agentkv:cached_tokens_total{tier="host"}') == 0
    assert grown("agentkv:generation_tokens_total") == 6
    assert grown('agentkv:requests_total{finish_reason="length"}') == 2
    assert grown("agentkv:time_to_first_token_seconds_count") == 2
    assert grown("agentkv:e2e_request_latency_seconds_count") == 2
    for gauge in ("num_requests_running", "num_requests_waiting", "token_usage"):
        assert after[f"agentkv:{gauge}"] == 0
    assert "agentkv:evicted_tokens_total" in after
    names = {re.split("[{ ]", name)[0] for name in after}
    assert not [n for n in names if n.endswith("_created") or "hit_rate" in n]
    assert all(n.startswith("agentkv:") for n in names)
