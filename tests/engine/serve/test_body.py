"""Bodies to structs, and structs to sampling parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.serve.body import parse
from agentkv.engine.serve.errors import ApiError
from agentkv.engine.serve.grammar import of_structured_outputs
from agentkv.engine.serve.params import (
    chat_params,
    completion_params,
    generate_params,
    salt_of,
    session_of,
)
from agentkv.engine.serve.protocol import ChatRequest, CompletionRequest, GenerateRequest
from agentkv.engine.types import Grammar

USER = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> ChatRequest:
    return parse(json.dumps({"messages": USER, **fields}).encode(), ChatRequest).value


def refused(kind: Any, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        request = parse(json.dumps(fields).encode(), kind).value
        makers: dict[Any, Callable[[Any, int], object]] = {
            ChatRequest: chat_params,
            CompletionRequest: completion_params,
            GenerateRequest: generate_params,
        }
        makers[kind](request, 100)
    assert caught.value.status == 400
    return caught.value


def test_unknown_fields_are_named_and_refused_ones_are_not_ignored() -> None:
    raw = json.dumps({"messages": USER, "store": True, "metadata": {}, "x\r\ny": 1}).encode()
    body = parse(raw, ChatRequest)
    assert body.ignored == ("store", "metadata", "x\r\ny")
    assert body.headers == {"x-agentkv-ignored": "store, metadata"}
    for name, value in [
        ("guided_json", {"type": "object"}),
        ("best_of", 4),
        ("functions", [{}]),
        ("modalities", ["audio"]),
    ]:
        error = refused(ChatRequest, messages=USER, **{name: value})
        assert (error.code, error.param) == ("unsupported_parameter", name)
    neutral = {"best_of": 1, "suffix": None, "modalities": ["text"], "guided_json": None}
    assert parse(json.dumps({"prompt": "a", **neutral}).encode(), CompletionRequest)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": "8"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"100": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"stop_token_ids": [100]}, "stop_token_ids"),
        ({"top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_a_wrong_value_names_its_field(fields: dict[str, Any], param: str) -> None:
    assert refused(ChatRequest, **{"messages": USER, **fields}).param == param


def test_a_missing_field_is_named() -> None:
    error = refused(ChatRequest, model="m")
    assert (error.param, error.code) == ("messages", "missing_required_parameter")
    assert refused(GenerateRequest, text="a", sampling_params={"top_k": "x"}).param == (
        "sampling_params.top_k"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 10**9},
        {"n": 0},
        {"temperature": -1},
        {"top_p": 0},
        {"max_tokens": -1},
        {"logit_bias": {str(i): 0 for i in range(99)} | {"5": 101}},
        {"stop": [""]},
        {"stop": ["x"] * 17},
        {"seed": 2**63},
        {"logprobs": True, "top_logprobs": 21},
    ],
)
def test_ranges_are_checked_before_the_engine(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        chat_params(chat(**fields), 100)
    with pytest.raises(ApiError):
        chat_params(chat(logit_bias={str(i): 0 for i in range(2000)}), 10_000)


def test_a_field_out_of_range_is_named_as_the_request_names_it() -> None:
    def named(make: Callable[[], object]) -> str | None:
        with pytest.raises(InvalidRequest) as refused:
            make()
        assert str(refused.value).startswith(f"{refused.value.param} must be ")
        return refused.value.param

    def generate(**fields: Any) -> GenerateRequest:
        return parse(json.dumps({"text": "a", **fields}).encode(), GenerateRequest).value

    many = chat(logprobs=True, top_logprobs=21)
    assert named(lambda: chat_params(many, 100)) == "top_logprobs"
    assert named(lambda: chat_params(chat(max_tokens=-1), 100)) == "max_tokens"
    both = chat(max_tokens=1, max_completion_tokens=-1)
    assert named(lambda: chat_params(both, 100)) == "max_completion_tokens"
    for fields, name in (
        ({"sampling_params": {"max_new_tokens": -1}}, "sampling_params.max_new_tokens"),
        ({"sampling_params": {"top_p": 0}}, "sampling_params.top_p"),
        ({"return_logprob": True, "top_logprobs_num": 99}, "top_logprobs_num"),
    ):
        asked = generate(**fields)
        assert named(partial(generate_params, asked, 100)) == name


def test_fields_reach_the_sampling_parameters() -> None:
    params = chat_params(
        chat(
            max_tokens=5,
            max_completion_tokens=7,
            stop="x",
            top_k=-1,
            n=2,
            seed=3,
            logprobs=True,
            logit_bias={"4": -1.5},
            response_format={"type": "text"},
            tool_choice="none",
        ),
        100,
    )
    assert (params.max_tokens, params.stop, params.top_k) == (7, ("x",), 0)
    assert (params.n, params.seed, params.logprobs) == (2, 3, 0)
    assert dict(params.logit_bias) == {4: -1.5}
    assert chat_params(chat(), 100).temperature == 1.0
    assert chat_params(chat(), 100).max_tokens is None
    assert chat_params(chat(temperature=0), 100).temperature == 0

    body = {"prompt": "a", "echo": True, "logprobs": 2}
    echo = completion_params(parse(json.dumps(body).encode(), CompletionRequest).value, 100)
    assert (echo.logprobs, echo.prompt_logprobs) == (2, 2)

    body = {"text": "a", "sampling_params": {"max_new_tokens": 3, "sampling_seed": 1}}
    native, asked = generate_params(parse(json.dumps(body).encode(), GenerateRequest).value, 100)
    assert (native.max_tokens, native.seed, native.logprobs) == (3, 1, None)
    assert asked is None


@pytest.mark.parametrize(
    ("sampling", "kind", "text"),
    [
        ({"json_schema": '{"type": "string"}'}, "json_schema", '{"type":"string"}'),
        ({"regex": "a+"}, "regex", "a+"),
    ],
)
def test_what_the_output_looks_like_in_sglang_s_words(
    sampling: dict[str, Any], kind: str, text: str
) -> None:
    request = GenerateRequest(text="a", sampling_params=sampling)
    _, asked = generate_params(request, 100)
    assert asked == (f"sampling_params.{next(iter(sampling))}", Grammar(kind, text))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sampling", "code"),
    [
        ({"ebnf": "root ::= x"}, "unsupported_parameter"),
        ({"structural_tag": "{}"}, "unsupported_parameter"),
        ({"json_schema": "{"}, "invalid_value"),
        ({"json_schema": "3"}, "invalid_value"),
        ({"json_schema": "{}", "regex": "a"}, "invalid_value"),
    ],
)
def test_grammars_that_are_refused(sampling: dict[str, Any], code: str) -> None:
    error = refused(GenerateRequest, text="a", sampling_params=sampling)
    assert error.code == code
    assert (error.param or "").startswith("sampling_params.")


@pytest.mark.parametrize(
    ("value", "grammar"),
    [
        (None, None),
        ({}, None),
        ({"json": {"type": "null"}}, Grammar("json_schema", '{"type":"null"}')),
        ({"json": '{"type": "null"}'}, Grammar("json_schema", '{"type":"null"}')),
        ({"json_object": True}, Grammar("json_schema", '{"type":"object"}')),
        ({"json_object": False}, None),
        ({"regex": "a+"}, Grammar("regex", "a+")),
        ({"choice": ["a b", 'c"']}, Grammar("lark", 'start: "a b" | "c\\""')),
    ],
)
def test_vllm_s_structured_outputs(value: dict[str, Any] | None, grammar: Grammar | None) -> None:
    assert of_structured_outputs(value) == grammar


@pytest.mark.parametrize(
    "value",
    [
        {"grammar": "root ::= x"},
        {"json": {}, "regex": "a"},
        {"json": 3},
        {"regex": ""},
        {"choice": []},
        {"choice": [1]},
        {"structural_tag": "x"},
    ],
)
def test_structured_outputs_that_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        of_structured_outputs(value)
    assert (caught.value.param or "").startswith("structured_outputs")


def test_the_session_is_the_most_specific_one_given() -> None:
    full = chat(agentkv={"session": "a"}, prompt_cache_key="b", user="d")
    assert session_of(full, "c") == "a"
    assert session_of(chat(prompt_cache_key="b", user="d"), "c") == "b"
    assert session_of(chat(user="d"), "c") == "c"
    assert session_of(chat(user="d"), None) == "d"
    assert session_of(chat(), None) is None


def test_salts_are_framed_by_tenant() -> None:
    assert salt_of("s", None) == "s"
    assert salt_of(None, None) is None
    assert salt_of("2345", "org_1") != salt_of("12345"[1:], "org_12")
    assert salt_of(None, "a") != salt_of(None, "b")
    assert salt_of("a", "b") != salt_of("b", "a")
    for bad in ("", "x" * 129):
        with pytest.raises(ApiError):
            salt_of(bad, None)
