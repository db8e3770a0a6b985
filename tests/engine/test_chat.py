"""Chat requests with tools and formats, on a model that knows nothing: what the grammar forces."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentkv.engine import Engine, SamplingParams
from agentkv.engine.chat import Chat, prepare, read_format
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text.calls.answer import Answer, AnswerDelta
from agentkv.engine.text.calls.choice import ToolChoice, read_choice


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


SHORT = {"type": "string", "maxLength": 12}
TOOLS = [
    tool("get_order", id=SHORT, lines={"type": "integer", "minimum": 0, "maximum": 99}),
    tool("close"),
    tool("rate", stars={"enum": [1, 2, 3]}),
]
USER = [{"role": "user", "content": "Where is it?"}]


def run(engine: Engine, chat: Chat, **more: Any) -> tuple[Answer, str]:
    output = engine.generate(chat.prompt, chat.params, **more)
    (choice,) = output.choices
    answer = chat.read(choice.text, choice.token_ids)
    reason = chat.finish_reason(choice.finish_reason, answer)
    chat.remember(answer, choice.token_ids, reason)
    return answer, reason


def hot(seed: int, **more: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 120, "temperature": 1.5, "seed": seed, **more})


def called(answer: Answer) -> list[tuple[str, Any]]:
    return [(c.name, json.loads(c.arguments)) for c in answer.tool_calls]


def check(name: str, arguments: Any) -> None:
    """What the schemas of `TOOLS` say."""
    if name == "get_order":
        assert set(arguments) == {"id", "lines"} and len(arguments["id"]) <= 12
        assert isinstance(arguments["lines"], int) and 0 <= arguments["lines"] <= 99
    elif name == "rate":
        assert arguments in ({"stars": 1}, {"stars": 2}, {"stars": 3})
    else:
        assert (name, arguments) == ("close", {})


def test_required_calls_some_tool_with_valid_arguments(shared: Engine) -> None:
    seen = set()
    for seed in range(6):
        chat = prepare(shared, USER, TOOLS, params=hot(seed), tool_choice="required")
        answer, reason = run(shared, chat)
        assert reason == "tool_calls" and answer.text == "" and len(answer.tool_calls) == 1
        ((name, arguments),) = called(answer)
        check(name, arguments)
        seen.add(name)
    assert len(seen) > 1 and chat.policy is None


def test_a_named_tool_is_called(shared: Engine) -> None:
    for name in ("get_order", "close", "rate"):
        choice = {"type": "function", "function": {"name": name}}
        chat = prepare(shared, USER, TOOLS, params=hot(1), tool_choice=choice)
        answer, reason = run(shared, chat)
        assert [c.name for c in answer.tool_calls] == [name] and reason == "tool_calls"


def test_only_allowed_tools_are_called_and_the_prompt_stays_the_same(shared: Engine) -> None:
    def allowed(mode: str, *names: str) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": n}} for n in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}

    prompts = set()
    for seed in range(6):
        choice = allowed("required", "rate", "close")
        chat = prepare(shared, USER, TOOLS, params=hot(seed), tool_choice=choice)
        answer, _ = run(shared, chat)
        assert {c.name for c in answer.tool_calls} <= {"rate", "close"}
        prompts.add(chat.prompt.token_ids.tobytes())
    for other in ("auto", "none", "required", None, allowed("auto", "close")):
        chat = prepare(shared, USER, TOOLS, params=hot(0), tool_choice=other)
        prompts.add(chat.prompt.token_ids.tobytes())
    assert len(prompts) == 1


def test_none_and_no_tools_give_plain_text(shared: Engine) -> None:
    chat = prepare(shared, USER, TOOLS, params=hot(0), tool_choice="none")
    assert chat.policy is None
    assert chat.choice == ToolChoice("none")
    answer, reason = run(shared, chat)
    assert not answer.tool_calls and reason in ("stop", "length")
    # A model that is weighed would write its call as text: the text cannot begin like one.
    assert chat.params.grammar is not None and not answer.text.startswith("<")
    assert prepare(shared, USER, params=hot(0)).params.grammar is None


def test_several_calls_only_where_they_are_wanted(shared: Engine) -> None:
    def counts(parallel: bool | None) -> set[int]:
        out = set()
        for seed in range(6):
            chat = prepare(
                shared,
                USER,
                TOOLS[1:2],
                params=hot(seed, max_tokens=130),
                tool_choice="required",
                parallel_tool_calls=parallel,
            )
            answer, _ = run(shared, chat)
            out.add(len(answer.tool_calls))
        return out

    assert counts(False) == {1}
    assert max(counts(True)) > 1


def test_auto_is_text_or_calls_and_scores_say_which(shared: Engine) -> None:
    kinds = set()
    for bias in (-40.0, 40.0):
        for seed in range(2):
            chat = prepare(shared, USER, TOOLS, params=hot(seed, max_tokens=90))
            assert chat.policy == "score" and chat.params.grammar is not None
            opener = chat.params.grammar.opener
            assert opener is not None and opener[0] == chat.renderer.script.opener_id
            grammar = replace(chat.params.grammar, opener=(opener[0], bias))
            params = replace(chat.params, grammar=grammar)
            output = shared.generate(chat.prompt, params)
            (choice,) = output.choices
            answer = chat.read(choice.text, choice.token_ids)
            kinds.add((bias, bool(answer.tool_calls)))
            if answer.tool_calls:
                assert answer.text == ""
                for name, arguments in called(answer):
                    check(name, arguments)
            assert choice.opener_scores is not None
    assert kinds == {(-40.0, False), (40.0, True)}


def test_a_free_choice_keeps_calls_valid_and_ends_behind_them(shared: Engine) -> None:
    """The opener is made certain at a place in the text; from there on the grammar holds."""
    chat = prepare(shared, USER, TOOLS, params=hot(0), auto_policy="free")
    assert chat.policy == "free" and chat.params.grammar is not None
    assert chat.params.grammar.opener is None
    texts = calls = 0
    for seed in range(4):
        params = hot(seed, max_tokens=40)
        chat = prepare(shared, USER, TOOLS, params=params, auto_policy="free")
        answer, _ = run(shared, chat)
        calls += bool(answer.tool_calls)
        texts += not answer.tool_calls
        assert "<tool_call>" not in answer.text
        for name, arguments in called(answer):
            check(name, arguments)
    assert texts  # a model that knows nothing hardly ever writes the opener


@pytest.mark.parametrize("max_tokens", range(1, 45, 4))
def test_a_forced_call_cut_by_length(shared: Engine, max_tokens: int) -> None:
    """B040: whatever max_tokens is, there is an answer, and `length` stays `length`."""
    choice = {"type": "function", "function": {"name": "close"}}
    try:
        chat = prepare(
            shared, USER, TOOLS, params=hot(0, max_tokens=max_tokens), tool_choice=choice
        )
        answer, reason = run(shared, chat)
    except InvalidRequest as error:
        assert error.param == "max_tokens"
        return
    if reason == "length":
        assert answer.text == ""
    else:
        assert called(answer) == [("close", {})]


def test_a_json_object_and_a_schema(shared: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Porto"]}, "n": {"type": "boolean"}},
        "required": ["city", "n"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for seed in range(4):
        answer, _ = run(shared, prepare(shared, USER, params=hot(seed), response_format=wanted))
        value = json.loads(answer.text)
        assert value["city"] in ("Oslo", "Porto") and isinstance(value["n"], bool)
        chat = prepare(
            shared, USER, TOOLS, params=hot(seed), response_format={"type": "json_object"}
        )
        answer, _ = run(shared, chat)
        if answer.tool_calls:
            check(*called(answer)[0])
        else:
            assert isinstance(json.loads(answer.text), dict)
        chat = prepare(
            shared, USER, TOOLS, params=hot(seed), response_format=wanted, tool_choice="none"
        )
        answer, _ = run(shared, chat)
        assert json.loads(answer.text)["city"] in ("Oslo", "Porto")


def test_deltas_and_the_whole_text_give_one_answer(shared: Engine) -> None:
    for seed in range(4):
        chat = prepare(shared, USER, TOOLS, params=hot(seed), tool_choice="required")
        reader = chat.reader()
        deltas: list[AnswerDelta] = []
        with shared.stream(chat.prompt, chat.params) as events:
            for event in events:
                if event.index == 0:
                    deltas.append(reader.feed(event.text, event.token_ids))
                if event.output is not None:
                    choice = event.output.choices[0]
        deltas.append(reader.finish())
        whole = chat.read(choice.text, choice.token_ids)
        assert [(c.name, c.arguments) for c in whole.tool_calls] == [
            (c.name, c.arguments) for c in reader.answer.tool_calls
        ]
        pieces = [c for d in deltas for c in d.calls]
        assert pieces[0].id == reader.answer.tool_calls[0].id and pieces[0].name
        assert all(p.id is None and p.name is None and p.arguments for p in pieces[1:])
        assert "".join(p.arguments for p in pieces) == reader.answer.tool_calls[0].arguments


def test_an_agent_loop_hits_all_that_was_there_before(shared: Engine) -> None:
    """Twelve calls, each sent back in another spelling: every prompt is in the cache up to the
    model's last token, and the answer is the one of a cold engine."""
    messages: list[dict[str, Any]] = [*USER]
    tools = [tool("r", s={"enum": [1, 2, 3]})]
    known: list[int] = []
    for turn in range(12):
        params = hot(turn, max_tokens=70)
        chat = prepare(shared, messages, tools, params=params, tool_choice="required")
        assert chat.prompt.token_ids[: len(known)].tolist() == known
        output = shared.generate(chat.prompt, chat.params)
        (choice,) = output.choices
        # The last sampled token is not in the cache: it was never computed.
        assert output.cache.cached_tokens >= len(known) - 1
        answer = chat.read(choice.text, choice.token_ids)
        chat.remember(answer, choice.token_ids, "tool_calls")
        ids = list(choice.token_ids)
        if ids[-1] in shared.tokenizer.eos_ids:
            ids.pop()
        known = [*chat.prompt.token_ids.tolist(), *ids]
        (call,) = answer.tool_calls
        spelled = json.dumps(json.loads(call.arguments), separators=(",", ":"))
        messages.append(
            {
                "role": "assistant",
                "content": (None, "", [])[turn % 3],
                "tool_calls": [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": spelled},
                    }
                ],
            }
        )
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{turn}"})
    last = chat.prompt.token_ids
    warm = shared.generate(last, SamplingParams(max_tokens=8, temperature=0))
    assert warm.cache.cached_tokens == len(last) - 1
    shared.flush()
    cold = shared.generate(last, SamplingParams(max_tokens=8, temperature=0))
    assert cold.cache.cached_tokens == 0 and cold.token_ids == warm.token_ids


def test_answers_that_a_stop_string_cut_are_not_remembered(shared: Engine) -> None:
    renderer = shared.renderer
    before = len(renderer._answers)
    choice = {"type": "function", "function": {"name": "get_order"}}
    params = hot(0, stop=(', "lines"',))
    chat = prepare(shared, USER, TOOLS, params=params, tool_choice=choice)
    answer, _ = run(shared, chat)
    assert len(answer.tool_calls) == 1 and answer.tool_calls[0].arguments.startswith('{"id": ')
    chat.remember(Answer("other", answer.tool_calls), (5, 6, 7), "stop")
    chat.remember(answer, (5, 6, 7), "abort")
    assert len(renderer._answers) == before


TOOL_NAMES = ("a", "b")


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (None, ToolChoice("auto", TOOL_NAMES)),
        ("auto", ToolChoice("auto", TOOL_NAMES)),
        ("none", ToolChoice("none")),
        ("any", ToolChoice("required", TOOL_NAMES)),
        ("required", ToolChoice("required", TOOL_NAMES)),
        ({"type": "any"}, ToolChoice("required", TOOL_NAMES)),
        ({"type": "function", "function": {"name": "b"}}, ToolChoice("required", ("b",))),
        ({"type": "function", "name": "b"}, ToolChoice("required", ("b",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "b"}]}},
            ToolChoice("auto", ("b",)),
        ),
        ({"type": "allowed_tools", "allowed_tools": {"tools": []}}, ToolChoice("none")),
    ],
)
def test_tool_choices(given: Any, want: ToolChoice) -> None:
    assert read_choice(given, TOOL_NAMES) == want


@pytest.mark.parametrize(
    "given",
    [
        "a",
        "",
        5,
        True,
        ["auto"],
        {},
        {"type": "tool"},
        {"type": "function"},
        {"type": "function", "function": {"name": "c"}},
        {"type": "function", "function": "a"},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": []}},
        {"type": "allowed_tools", "allowed_tools": {"tools": "a"}},
        {"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "c"}]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
    ],
)
def test_wrong_tool_choices_are_named(given: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_choice(given, TOOL_NAMES)
    assert caught.value.param == "tool_choice"


def test_a_call_cannot_be_required_without_tools() -> None:
    for choice in ("required", "any", {"type": "function", "function": {"name": "a"}}):
        with pytest.raises(InvalidRequest, match="tools"):
            read_choice(choice, ())
    assert read_choice(None, ()).mode == read_choice("auto", ()).mode == "none"


@pytest.mark.parametrize("given", [5, {}, {"type": "xml"}, {"type": "json_schema"}, "json_object"])
def test_wrong_response_formats_are_named(given: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_format(given)
    assert caught.value.param == "response_format"


def test_a_schema_that_cannot_be_kept_is_named_only_when_it_matters(shared: Engine) -> None:
    odd = tool("odd", x={"type": "array", "contains": {"type": "integer"}})
    tools = [*TOOLS, odd]
    for choice in ("required", None, {"type": "function", "function": {"name": "odd"}}):
        with pytest.raises(InvalidRequest, match=r"'odd'.*\$\.properties\.x\.contains") as caught:
            prepare(shared, USER, tools, params=hot(0), tool_choice=choice)
        assert caught.value.param == "tools"
    prepare(shared, USER, tools, params=hot(0), tool_choice="none")
    named = {"type": "function", "function": {"name": "rate"}}
    prepare(shared, USER, tools, params=hot(0), tool_choice=named)


def test_other_wrong_parameters_are_named(shared: Engine) -> None:
    for param, options in (
        ("auto_policy", {"auto_policy": "guess"}),
        ("parallel_tool_calls", {"parallel_tool_calls": "no"}),
        ("tool_choice", {"tool_choice": "sometimes"}),
        ("response_format", {"response_format": {"type": "yaml"}}),
    ):
        with pytest.raises(InvalidRequest) as caught:
            prepare(shared, USER, TOOLS, params=hot(0), **options)
        assert caught.value.param == param
    with pytest.raises(IndexError):
        prepare(shared, USER, TOOLS, params=hot(0)).reader(1)
