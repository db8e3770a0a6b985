"""`/v1/completions`: prompts of every shape, echo, log-probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

PATH = "/v1/completions"
ASK = {"max_tokens": 8, "temperature": 0}


def test_prompts_of_every_shape(tiny: Live) -> None:
    ids = [
        tiny.post("/tokenize", {"prompt": p}).json()["tokens"] for p in ("the end", "in the hall")
    ]
    one = tiny.post(PATH, {**ASK, "prompt": "the end"}).json()
    assert one["object"] == "text_completion"
    as_ids = tiny.post(PATH, {**ASK, "prompt": ids[0]}).json()
    assert as_ids["choices"][0]["text"] == one["choices"][0]["text"]
    assert as_ids["usage"]["prompt_cache_hit_tokens"] == len(ids[0]) - 1
    many = tiny.post(PATH, {**ASK, "prompt": ["the end", "in the hall"], "n": 2}).json()
    assert [c["index"] for c in many["choices"]] == [0, 1, 2, 3]
    assert many["choices"][0]["text"] == one["choices"][0]["text"]
    assert many["usage"]["prompt_tokens"] == len(ids[0]) + len(ids[1])
    assert many["usage"]["completion_tokens"] == 32
    assert len(many["usage"]["agentkv"]["calls"]) == 2
    lists = tiny.post(PATH, {**ASK, "prompt": ids, "n": 2}).json()
    assert [c["text"] for c in lists["choices"]] == [c["text"] for c in many["choices"]]
    body = {**ASK, "prompt": ids, "n": 2, "stream_options": {"include_usage": True}}
    events = tiny.stream(PATH, body)
    for i in range(4):
        mine = [c for e in events for c in e["choices"] if c["index"] == i]
        assert "".join(c["text"] for c in mine) == many["choices"][i]["text"]
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["length"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 32


def test_echo_and_logprobs(tiny: Live) -> None:
    prompt = "the 你 end"
    ids = tiny.post("/tokenize", {"prompt": prompt}).json()["tokens"]
    ask = {**ASK, "prompt": prompt, "echo": True, "logprobs": 2}
    choice = tiny.post(PATH, ask).json()["choices"][0]
    bare = tiny.post(PATH, {**ASK, "prompt": prompt, "logprobs": 2}).json()["choices"][0]
    assert choice["text"] == prompt + bare["text"]
    scores = choice["logprobs"]
    assert len(scores["tokens"]) == len(ids) + 8
    assert all(len(scores[k]) == len(ids) + 8 for k in scores)
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert all(-9999 <= x <= 0 for x in scores["token_logprobs"][1:])
    assert scores["token_logprobs"][len(ids) :] == pytest.approx(
        bare["logprobs"]["token_logprobs"], abs=1e-5
    )
    for token, offset in zip(scores["tokens"], scores["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert choice["text"][offset : offset + len(token)] == token
    score_only = tiny.post(PATH, {**ask, "max_tokens": 0}).json()["choices"][0]
    assert score_only["text"] == prompt
    assert score_only["logprobs"]["token_logprobs"][1:] == pytest.approx(
        scores["token_logprobs"][1 : len(ids)], abs=1e-5
    )
    refused = tiny.post(PATH, {**ask, "stream": True})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "echo"
    streamed = tiny.stream(PATH, {**ASK, "prompt": prompt, "echo": True})
    assert "".join(c["text"] for e in streamed for c in e["choices"]) == choice["text"]
    scored = tiny.stream(PATH, {**ASK, "prompt": prompt, "logprobs": 2})
    merged: dict[str, list[Any]] = {}
    for event in scored:
        for key, values in (event["choices"][0]["logprobs"] or {}).items():
            merged.setdefault(key, []).extend(values)
    assert merged["tokens"] == bare["logprobs"]["tokens"]
    assert merged["token_logprobs"] == bare["logprobs"]["token_logprobs"]


@pytest.mark.parametrize(
    "prompt", ["", [], [[]], ["a", [1]], [1, "a"], [1.5], [True], [-1], [10**6], [[[1]]], {}, None]
)
def test_bad_prompts(tiny: Live, prompt: Any) -> None:
    reply = tiny.post(PATH, {**ASK, "prompt": prompt})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == "prompt"


def test_one_refused_prompt_refuses_the_call_and_nothing_is_left(tiny: Live) -> None:
    long = "a" * 3000
    for stream in (False, True):
        reply = tiny.post(PATH, {**ASK, "prompt": ["fine", long], "stream": stream})
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "context_length_exceeded"
    tiny.until_idle()
    assert tiny.post(PATH, {**ASK, "prompt": ["x"] * 65}).status_code == 400
    for field, value in (("suffix", "z"), ("best_of", 2)):
        error = tiny.post(PATH, {**ASK, "prompt": "a", field: value}).json()["error"]
        assert (error["code"], error["param"]) == ("unsupported_parameter", field)
    assert tiny.post(PATH, {**ASK, "prompt": "a", "suffix": None, "best_of": 1}).status_code == 200
