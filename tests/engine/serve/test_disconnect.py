"""Clients that go away: in the queue, in prefill, in decode, streamed or not, by raw socket."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

PATH = "/v1/completions"


def long_prompt(seed: int, tokens: int = 1900) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(10, 200) for _ in range(tokens)]


@pytest.mark.parametrize("stream", [False, True])
def test_b022_an_abandoned_prefill_goes_further_at_each_try(
    make_engine: Callable[..., Any], serve: Callable[..., Live], stream: bool
) -> None:
    live = serve(make_engine(threads=1, max_batch_tokens=16, page_size=16))
    body = {"prompt": long_prompt(1), "max_tokens": 4, "temperature": 0, "stream": stream}
    seen: list[int] = []
    for _ in range(3):
        wanted = live.get("/server_info").json()["steps_total"] + 4
        sock = live.send(PATH, body)
        live.until(lambda i, n=wanted: i["num_requests_running"] and i["steps_total"] >= n)  # type: ignore[misc]
        sock.close()
        info = live.until_idle()
        assert info["generation_tokens_total"] == 0, "it was still in prefill"
        seen.append(info["evictable_tokens"])
    assert 0 < seen[0] < seen[1] < seen[2], "whole pages of each try are kept"
    warm = live.post(PATH, {**body, "stream": False}).json()
    assert warm["usage"]["prompt_cache_hit_tokens"] >= seen[2]
    live.post("/flush_cache", {})
    cold = live.post(PATH, {**body, "stream": False}).json()
    assert cold["usage"]["prompt_cache_hit_tokens"] == 0
    assert warm["choices"] == cold["choices"]


@pytest.mark.parametrize("stream", [False, True])
def test_gone_in_the_queue_never_starts(
    make_engine: Callable[..., Any], serve: Callable[..., Live], stream: bool
) -> None:
    live = serve(make_engine(threads=1, max_running=1))
    body = {"max_tokens": 1900, "ignore_eos": True}
    running = live.send(PATH, {**body, "prompt": "a", "stream": True})
    live.until(lambda i: i["num_requests_running"] == 1)
    queued = live.send(PATH, {**body, "prompt": "queued", "stream": stream})
    info = live.until(lambda i: i["num_requests_waiting"] == 1)
    queued.close()
    after = live.until(lambda i: i["num_requests_waiting"] == 0 and i["num_http_requests"] == 1)
    assert after["num_requests_running"] == 1, "the other one goes on"
    assert after["prompt_tokens_total"] == info["prompt_tokens_total"]
    running.close()
    live.until_idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_gone_in_decode(tiny: Live, stream: bool, n: int) -> None:
    before = tiny.get("/server_info").json()["generation_tokens_total"]
    body = {"prompt": "the hall", "max_tokens": 1500, "ignore_eos": True, "stream": stream, "n": n}
    sock = tiny.send(PATH, body)
    tiny.until(lambda i: i["generation_tokens_total"] > before + 10)
    sock.close()
    after = tiny.until_idle()
    assert after["generation_tokens_total"] < before + 1500
    again = tiny.post(PATH, {"prompt": "the hall", "max_tokens": 1}).json()
    assert again["usage"]["prompt_cache_miss_tokens"] == 1, "the prompt stays cached"


def test_gone_half_way_through_the_body(tiny: Live) -> None:
    sock = tiny.raw()
    sock.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b'content-length: 500\r\n\r\n{"prompt": "x'
    )
    sock.close()
    tiny.until_idle()
    assert tiny.post(PATH, {"prompt": "a", "max_tokens": 1}).status_code == 200


def test_b035_clients_killed_at_random_leave_nothing(
    make_engine: Callable[..., Any], serve: Callable[..., Live]
) -> None:
    live = serve(make_engine(threads=1, max_running=3, max_batch_tokens=64))
    rng = random.Random(3)
    for _ in range(2):
        socks = []
        for i in range(8):
            body = {
                "prompt": long_prompt(i, rng.choice([20, 200, 600])),
                "max_tokens": 1000,
                "ignore_eos": True,
                "stream": bool(i % 2),
            }
            socks.append(live.send(PATH, body))
        rng.shuffle(socks)
        live.until(lambda i: i["num_http_requests"] == 8)
        for sock in socks:
            steps = live.get("/server_info").json()["steps_total"]
            wanted = steps + rng.randrange(4)
            live.until(lambda i, wanted=wanted: i["steps_total"] >= wanted)  # type: ignore[misc]
            sock.close()
        info = live.until_idle()
        assert info["free_tokens"] + info["evictable_tokens"] == info["pool_tokens"]
    text = live.get("/metrics").text
    assert 'agentkv:requests_total{finish_reason="abort"} 16.0' in text
    assert live.post(PATH, {"prompt": "a", "max_tokens": 1}).status_code == 200
