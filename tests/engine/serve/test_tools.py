"""Tools over HTTP: what may be called, how a call goes out, and how it comes back.

The tiny model says nothing of sense, so the grammar does: with one property that must be one of a
few values, a call has the arguments that a test expects.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from agentkv.engine import Engine
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"


@pytest.fixture
def tiny(shared: Engine, serve: Callable[..., Live]) -> Live:
    """A server whose engine is the suite's shared one: calls are long for this model."""
    return serve(shared)


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name}.",
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        },
    }


WEATHER = tool("weather", city={"enum": ["Paris", "Oslo"]}, days={"enum": [1, 2]})
CANCEL = tool("cancel", order={"enum": ["12-345"]})
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi there"}],
    "tools": [WEATHER, CANCEL],
    "temperature": 0,
    "max_tokens": 120,
}
FORCED = {**ASK, "tool_choice": "required", "parallel_tool_calls": False}
FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "mood",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"mood": {"enum": ["good", "bad"]}},
            "required": ["mood"],
            "additionalProperties": False,
        },
    },
}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def put_together(events: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """The message and the end of one choice, from its chunks."""
    message: dict[str, Any] = {}
    ends = []
    for event in events:
        for choice in event["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            if choice["finish_reason"]:
                ends.append(choice["finish_reason"])
            for name in ("role", "content", "reasoning_content"):
                if delta.get(name) is not None:
                    message[name] = message.get(name, "") + delta[name]
            for part in delta.get("tool_calls", ()):
                calls = message.setdefault("tool_calls", [])
                if part["index"] == len(calls):
                    calls.append({"id": part["id"], "type": part["type"], **part["function"]})
                    assert part["function"]["arguments"] == ""
                else:
                    assert set(part) == {"index", "function"}
                    assert set(part["function"]) == {"arguments"}
                    calls[part["index"]]["arguments"] += part["function"]["arguments"]
    assert len(ends) == 1, "one end for each choice"
    return {**message, "finish_reason": ends[0]}


def flat(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a whole reply in the form of `put_together`, without its calls' ids."""
    message = choice["message"]
    out = {k: message[k] for k in ("role", "content", "reasoning_content") if message.get(k)}
    if "tool_calls" in message:
        out["tool_calls"] = [{"type": c["type"], **c["function"]} for c in message["tool_calls"]]
    return {**out, "finish_reason": choice["finish_reason"]}


def bare(message: dict[str, Any]) -> dict[str, Any]:
    out = {k: v for k, v in message.items() if v != ""}
    if "tool_calls" in out:
        out["tool_calls"] = [
            {k: v for k, v in c.items() if k != "id"} for c in message["tool_calls"]
        ]
    return out


# -- shapes --------------------------------------------------------------------------------------


def test_a_whole_reply_with_a_call(tiny: Live) -> None:
    reply = tiny.post(CHAT, FORCED).json()
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] is None, "there are only calls"
    assert "reasoning_content" not in message
    (call,) = message["tool_calls"]
    assert set(call) == {"id", "type", "function"} and call["type"] == "function"
    assert call["id"].startswith("call_")
    assert call["function"]["name"] in ("weather", "cancel")
    json.loads(call["function"]["arguments"])


def test_a_stream_has_openai_s_deltas(tiny: Live) -> None:
    whole = tiny.post(CHAT, FORCED).json()
    events = tiny.stream(CHAT, {**FORCED, "stream_options": {"include_usage": True}})
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    deltas = [c["delta"] for e in events for c in e["choices"]]
    first = next(d for d in deltas if "tool_calls" in d)["tool_calls"]
    (part,) = first
    assert set(part) == {"index", "id", "type", "function"}
    assert part["index"] == 0 and part["type"] == "function"
    assert part["function"]["arguments"] == "" and part["function"]["name"]
    assert all(len(d.get("tool_calls", ())) <= 1 for d in deltas)
    assert events[-2]["choices"][0]["delta"] == {}
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    message = put_together(events)
    assert "content" not in message
    assert bare(message) == flat(whole["choices"][0])
    usage = events[-1]["usage"]
    assert usage["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_several_calls_are_numbered(tiny: Live) -> None:
    ask = {**ASK, "tool_choice": "required", "parallel_tool_calls": True, "max_tokens": 900}
    for seed in range(8):
        body = {**ask, "temperature": 1.5, "seed": seed}
        whole = tiny.post(CHAT, body).json()["choices"][0]
        message = put_together(tiny.stream(CHAT, body))
        assert bare(message) == flat(whole)
        ids = [c["id"] for c in message["tool_calls"]]
        assert len(set(ids)) == len(ids)
        if len(ids) > 1:
            break
    else:
        pytest.fail("no answer had several calls")


def test_logprobs_and_ids_of_calls(tiny: Live) -> None:
    ask = {**FORCED, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    (whole,) = tiny.post(CHAT, ask).json()["choices"]
    events = tiny.stream(CHAT, ask)
    choices = [c for e in events for c in e["choices"]]
    scored = [x for c in choices for x in (c["logprobs"] or {}).get("content", ())]
    assert scored == whole["logprobs"]["content"]
    assert [i for c in choices for i in c["token_ids"]] == whole["token_ids"]
    assert bare(put_together(events)) == flat(whole)


# -- what may be called --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"weather", "cancel"}),
        ("any", {"weather", "cancel"}),
        (named("weather"), {"weather"}),
        (named("cancel"), {"cancel"}),
        (allowed("required", "cancel"), {"cancel"}),
        (allowed("required", "weather", "cancel"), {"weather", "cancel"}),
    ],
)
def test_a_forced_call_is_one_of_those_asked_for(tiny: Live, choice: Any, names: set[str]) -> None:
    for seed in range(3):
        body = {**FORCED, "tool_choice": choice, "temperature": 1.0, "seed": seed}
        (got,) = tiny.post(CHAT, body).json()["choices"]
        (call,) = got["message"]["tool_calls"]
        assert call["function"]["name"] in names
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "cancel":
            assert arguments == {"order": "12-345"}
        else:
            assert arguments["city"] in ("Paris", "Oslo") and arguments["days"] in (1, 2)


def test_what_may_be_called_never_changes_the_prompt(tiny: Live) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"tool_choice": "required"},
        {"tool_choice": named("cancel")},
        {"tool_choice": allowed("auto", "weather")},
        {"tool_choice": allowed("required", "weather")},
        {"parallel_tool_calls": False},
        {"parallel_tool_calls": True},
        {"response_format": FORMAT},
        {"response_format": {"type": "json_object"}, "tool_choice": "none"},
        {"agentkv": {"auto_policy": "free"}},
        {"agentkv": {"auto_policy": "score"}},
    ]
    prompts = []
    for i, change in enumerate(variants):
        reply = tiny.post(CHAT, {**ASK, **change, "return_token_ids": True}).json()
        prompts.append(reply["prompt_token_ids"])
        cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == (len(prompts[0]) - 1 if i else 0)
    assert all(ids == prompts[0] for ids in prompts)


def test_none_gives_text(tiny: Live) -> None:
    body = {**ASK, "tool_choice": "none", "max_tokens": 12}
    (choice,) = tiny.post(CHAT, body).json()["choices"]
    assert choice["message"]["content"] and "tool_calls" not in choice["message"]
    events = tiny.stream(CHAT, body)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert bare(put_together(events)) == flat(choice)


def test_the_weighing_of_a_call_against_text_is_told(tiny: Live) -> None:
    body = {**ASK, "agentkv": {"auto_policy": "score"}, "max_tokens": 200}
    reply = tiny.post(CHAT, body).json()
    weighed = reply["usage"]["agentkv"]["tool_choice"]
    assert set(weighed) == {"opener", "text"}
    assert all(isinstance(v, float) and v <= 0 for v in weighed.values())
    events = tiny.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    again = events[-1]["usage"]["agentkv"]["tool_choice"]
    assert again == pytest.approx(weighed, abs=1e-3)
    for free in ({**ASK, "agentkv": {"auto_policy": "free"}}, FORCED):
        usage = tiny.post(CHAT, free).json()["usage"]
        assert "tool_choice" not in usage["agentkv"], "nothing was weighed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"tool_choice": "sometimes"}, "tool_choice", "sometimes"),
        ({"tool_choice": named("nothing")}, "tool_choice", "nothing"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice", "custom"),
        ({"tool_choice": allowed("required")}, "tool_choice", "no tool"),
        ({"tool_choice": "required", "tools": []}, "tool_choice", "no tools"),
        ({"tools": [{"type": "function"}]}, "tools", ""),
        ({"agentkv": {"auto_policy": "dice"}}, "auto_policy", "dice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls", ""),
        (
            {"tools": [tool("f", a={"type": "array", "contains": {"type": "string"}})]},
            "tools",
            "$.properties.a.contains",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "x",
                        "schema": {"properties": {"b": {"if": {"type": "null"}}}},
                    },
                }
            },
            "response_format",
            "$.properties.b.if",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
    ],
)
def test_refusals_name_their_field(
    tiny: Live, change: dict[str, Any], param: str, said: str, stream: bool
) -> None:
    reply = tiny.post(CHAT, {**ASK, **change, "stream": stream})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert said in error["message"]


def test_grammars_are_made_off_the_event_loop(tiny: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    compile = tiny.engine.compile

    def watched(grammar: Any) -> None:
        import asyncio

        try:
            asyncio.get_running_loop()
            threads.append(False)
        except RuntimeError:
            threads.append(True)
        compile(grammar)

    monkeypatch.setattr(tiny.engine, "compile", watched)
    tiny.post(CHAT, FORCED)
    tiny.post(CHAT, {**ASK, "tools": [], "response_format": FORMAT})
    tiny.post("/v1/completions", {"prompt": "a", "response_format": FORMAT})
    tiny.post("/generate", {"text": "a", "sampling_params": {"regex": "ab"}})
    assert threads == [True] * 4


# -- reported bugs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tool_choice": "auto", "max_tokens": 20},
        {"tool_choice": "none", "max_tokens": 5},
        {"n": 2, "temperature": 1.0, "seed": 4},
        {"n": 3, "temperature": 1.0, "seed": 9, "tool_choice": "auto", "max_tokens": 60},
        {"stop": ["Paris", "Oslo", "345"]},
        {"tools": None, "tool_choice": None, "max_tokens": 7},
    ],
)
def test_b038_one_end_for_each_choice_and_the_same_in_a_stream(
    tiny: Live, change: dict[str, Any]
) -> None:
    body = {**FORCED, **change}
    whole = tiny.post(CHAT, body).json()["choices"]
    events = tiny.stream(CHAT, body)
    for choice in whole:
        got = put_together(events, choice["index"])
        assert bare(got) == flat(choice)
        assert choice["finish_reason"] in ("stop", "length", "tool_calls")


def test_b040_any_length_ends_a_streamed_call_properly(tiny: Live) -> None:
    ends = set()
    forced = {**FORCED, "tool_choice": named("cancel")}
    whole_call = tiny.post(CHAT, forced).json()["usage"]["completion_tokens"]
    for most in [*range(1, 41, 5), *range(whole_call - 3, whole_call + 3)]:
        body = {**forced, "max_tokens": most}
        whole = tiny.post(CHAT, body)
        if whole.status_code == 400:
            error = whole.json()["error"]
            assert error["param"] == "max_tokens", error
            assert tiny.post(CHAT, {**body, "stream": True}).status_code == 400
            ends.add("refused")
            continue
        (choice,) = whole.json()["choices"]
        events = tiny.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
        got = put_together(events)
        assert bare(got) == flat(choice)
        assert events[-1]["usage"]["completion_tokens"] <= most
        ends.add(choice["finish_reason"])
        for call in got.get("tool_calls", ()):
            if choice["finish_reason"] == "tool_calls":
                assert json.loads(call["arguments"]) == {"order": "12-345"}
    assert ends <= {"refused", "length", "tool_calls"} and len(ends) > 1


def test_b040_a_call_that_begins_by_itself_and_is_cut(tiny: Live) -> None:
    """Free text that turns into a call: then no closing is promised, and `length` stays."""
    opener = tiny.post("/tokenize", {"prompt": "<tool_call>"}).json()["tokens"]
    seen = set()
    for most in range(1, 41, 4):
        body = {
            **ASK,
            "agentkv": {"auto_policy": "free"},
            "max_tokens": most,
            "logit_bias": {str(i): 100 for i in opener[:1]},
        }
        (choice,) = tiny.post(CHAT, body).json()["choices"]
        events = tiny.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
        assert bare(put_together(events)) == flat(choice)
        assert choice["finish_reason"] in ("length", "tool_calls")
        seen.add(choice["finish_reason"])
    assert "length" in seen


def test_b037_thirty_two_streams_keep_to_themselves(
    make_engine: Callable[..., Any], serve: Callable[..., Live]
) -> None:
    """Each is made to say its own number; half go away at random, and ask again at once."""
    live = serve(make_engine(pool_tokens=40_000, check_invariants=False))
    rng = random.Random(5)
    numbers = [f"{rng.randrange(10**6):06d}" for _ in range(32)]
    leaves = set(rng.sample(range(32), 16))
    barrier = threading.Barrier(32)

    def body(i: int) -> dict[str, Any]:
        return {
            "messages": [{"role": "user", "content": f"Say {numbers[i]}."}],
            "tools": [tool("say", number={"const": numbers[i]})],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "temperature": 1.0,
            "seed": i,
            "max_tokens": 120,
            # Without one, a report may quote what some other call without one had there.
            "agentkv": {"session": str(i)},
        }

    def read(client: httpx.Client, i: int, upto: int | None) -> str:
        text, request = "", {**body(i), "stream": True, "stream_options": {"include_usage": True}}
        with client.stream("POST", CHAT, json=request) as reply:
            assert reply.status_code == 200
            for count, line in enumerate(reply.iter_lines()):
                text += line
                if upto is not None and count >= upto:
                    break
        return text

    def one(i: int) -> list[str]:
        with live.client() as client:
            barrier.wait(30)
            got = []
            if i in leaves:
                got.append(read(client, i, random.Random(i).randrange(1, 24)))
            got.append(read(client, i, None))
            got.append(client.post(CHAT, json=body(i)).text)
            return got

    with ThreadPoolExecutor(32) as pool:
        said = list(pool.map(one, range(32)))
    for i, texts in enumerate(said):
        for text in texts:
            for other, number in enumerate(numbers):
                assert other == i or number not in text
        stream, whole = texts[-2], json.loads(texts[-1])
        (call,) = whole["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"number": numbers[i]}
        usage = json.loads(stream.split("data: ")[-2])["usage"]
        assert whole["usage"]["prompt_tokens"] == usage["prompt_tokens"]
        hit = whole["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert hit == usage["prompt_tokens"] - 1
    live.until_idle()


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize(
    ("field", "param"),
    [
        ('"messages":[{"role":"user","content":"a%s"}]', "messages[0].content"),
        ('"tools":[{"type":"function","function":{"name":"%s"}}]', "tools[0].function.name"),
        (
            '"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function",'
            '"function":{"name":"f","arguments":"%s"}}]}]',
            "messages[0].tool_calls[0].function.arguments",
        ),
        ('"stop":["%s"]', "stop[0]"),
        ('"stop":"%s"', "stop"),
        ('"tool_choice":{"type":"function","function":{"name":"%s"}}', "tool_choice.function.name"),
    ],
)
def test_b041_half_a_character_is_a_400_that_names_its_place(
    tiny: Live, field: str, param: str, stream: str
) -> None:
    rest = '"max_tokens":2,"stream":' + stream
    if '"messages"' not in field:
        rest += ',"messages":[{"role":"user","content":"hi"}]'

    def post(text: str) -> httpx.Response:
        with tiny.client() as client:
            raw = "{" + field.replace("%s", text) + "," + rest + "}"
            headers = {"content-type": "application/json"}
            return client.post(CHAT, content=raw.encode(), headers=headers)

    for half in ("\\ud83d", "\\ude00", "x\\ud83dy"):
        reply = post(half)
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert "Traceback" not in reply.text
    pair = post("\\ud83d\\ude00")
    assert pair.status_code in (200, 400)
    if pair.status_code == 400:  # a smiley is no name of a tool, and no JSON object
        assert "surrogate" not in pair.text


@pytest.mark.parametrize("content", ["missing", None, "", [], [{"type": "text", "text": ""}]])
def test_b043_a_turn_of_calls_with_any_content_is_the_same_turn(tiny: Live, content: Any) -> None:
    asked = {**FORCED, "tool_choice": named("cancel"), "return_token_ids": True}
    first = tiny.post(CHAT, asked).json()
    said = first["choices"][0]
    turn = {"role": "assistant", "tool_calls": said["message"]["tool_calls"]}
    if content != "missing":
        turn["content"] = content
    # Another client writes the same arguments in its own way.
    function = turn["tool_calls"][0]["function"]
    function["arguments"] = json.dumps(json.loads(function["arguments"]), indent=2)
    result = {"role": "tool", "tool_call_id": turn["tool_calls"][0]["id"], "content": "done"}
    again = tiny.post(CHAT, {**asked, "messages": [*ASK["messages"], turn, result]}).json()
    before = first["prompt_token_ids"] + said["token_ids"]
    assert again["prompt_token_ids"][: len(before)] == before, "fed back as it was sampled"
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    # The last sampled token's own keys and values were never computed.
    assert cached == len(before) - 1
    tiny.post("/flush_cache", {})
    cold = tiny.post(CHAT, {**asked, "messages": [*ASK["messages"], turn, result]}).json()
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert cold["choices"][0]["token_ids"] == again["choices"][0]["token_ids"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_b044_json_always_comes_to_its_end(tiny: Live, stream: bool, temperature: float) -> None:
    for seed in range(8):
        body = {
            "messages": [{"role": "user", "content": "Well, it depends, does it not?"}],
            "response_format": FORMAT,
            "temperature": temperature,
            "seed": seed,
            "max_tokens": 40,
        }
        if stream:
            got = put_together(tiny.stream(CHAT, body))
        else:
            got = flat(tiny.post(CHAT, body).json()["choices"][0])
        assert got["finish_reason"] == "stop"
        assert json.loads(got["content"])["mood"] in ("good", "bad")
        assert "  " not in got["content"], "white space is bounded"


def test_json_or_a_call_where_both_were_asked_for(tiny: Live) -> None:
    seen = set()
    for seed in range(12):
        body = {
            **ASK,
            "response_format": FORMAT,
            "agentkv": {"auto_policy": "free"},
            "temperature": 1.5,
            "seed": seed,
            "max_tokens": 200,
            "parallel_tool_calls": False,
        }
        (choice,) = tiny.post(CHAT, body).json()["choices"]
        if choice["finish_reason"] == "tool_calls":
            json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
        else:
            assert choice["finish_reason"] == "stop"
            assert set(json.loads(choice["message"]["content"])) == {"mood"}
        assert bare(put_together(tiny.stream(CHAT, body))) == flat(choice)
        seen.add(choice["finish_reason"])
        if len(seen) == 2:
            break
    assert seen == {"tool_calls", "stop"}


def test_raw_prompts_and_ids_may_have_a_grammar_too(tiny: Live) -> None:
    body = {"prompt": "a", "max_tokens": 40, "temperature": 0}
    schema = FORMAT["json_schema"]["schema"]  # type: ignore[index]

    def text(**fields: Any) -> str:
        reply = tiny.post("/v1/completions", {**body, **fields}).json()
        return str(reply["choices"][0]["text"])

    assert set(json.loads(text(response_format=FORMAT))) == {"mood"}
    assert isinstance(json.loads(text(response_format={"type": "json_object"})), dict)
    assert set(json.loads(text(structured_outputs={"json": schema}))) == {"mood"}
    assert text(structured_outputs={"choice": ["yes, it is", 'no "way"']}) in (
        "yes, it is",
        'no "way"',
    )
    assert text(structured_outputs={"regex": "ab{3}c"}) == "abbbc"
    native = tiny.post(
        "/generate",
        {
            "text": "a",
            "sampling_params": {"json_schema": json.dumps(schema), "max_new_tokens": 40},
        },
    ).json()
    assert set(json.loads(native["text"])) == {"mood"}
    both = {"response_format": FORMAT, "structured_outputs": {"regex": "a"}}
    reply = tiny.post("/v1/completions", {**body, **both})
    assert reply.status_code == 400
    wrong = tiny.post("/v1/completions", {**body, "structured_outputs": {"regex": "("}})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "structured_outputs"
