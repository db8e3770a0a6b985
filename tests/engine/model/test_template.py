"""The embedded model's chat template: what it renders, and that it only ever appends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

import agentkv.engine.model
from agentkv.engine.text.canonical import canonical_tool

SOURCE = (
    Path(agentkv.engine.model.__file__).parent / "templates" / "smollm2_tools.jinja"
).read_text(encoding="utf-8")
ORIGINAL = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
Message = dict[str, Any]


def compile_template(source: str, *, trim: bool = True) -> jinja2.Template:
    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=trim, lstrip_blocks=trim)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(source)


OURS = compile_template(SOURCE)


def render(messages: list[Message], tools: list[Any] | None = None, *, reply: bool = False) -> str:
    return OURS.render(messages=messages, tools=tools, add_generation_prompt=reply)


TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "description": "Look <up>", "parameters": {"type": "object"}},
    },
    {
        "type": "function",
        "function": {"name": "save", "description": "Säve", "parameters": {"type": "object"}},
    },
]


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "call_x", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_whole_turn_with_tools() -> None:
    got = render(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look it up."},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [call("look", '{"a":1}'), call("save", {"b": "é"})],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "one"},
            {"role": "tool", "tool_call_id": "call_2", "content": "two"},
            {"role": "assistant", "content": "Done.", "tool_calls": [call("look", {})]},
        ],
        TOOLS,
        reply=True,
    )
    assert got == (
        "<|im_start|>system\n"
        "# Tools\n\n"
        "You can call the functions listed between <tools> and </tools>, one JSON definition a line:\n"
        "<tools>\n"
        '{"type": "function", "function": {"name": "look", "description": "Look <up>", "parameters": {"type": "object"}}}\n'
        '{"type": "function", "function": {"name": "save", "description": "Säve", "parameters": {"type": "object"}}}\n'
        "</tools>\n\n"
        "To call one, write its name and its arguments as a JSON object between tags:\n"
        '<tool_call>\n{"name": "function", "arguments": {"argument": "value"}}\n</tool_call>\n'
        "Its result comes back between <tool_response> and </tool_response>.\n\n"
        "Be brief.<|im_end|>\n"
        "<|im_start|>user\nLook it up.<|im_end|>\n"
        "<|im_start|>assistant\n"
        '<tool_call>\n{"name": "look", "arguments": {"a":1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "save", "arguments": {"b": "é"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\none\n</tool_response><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        '<|im_start|>assistant\nDone.\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>assistant\n"
    )


TEXT = st.text(max_size=12)
PLAIN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": TEXT}
)


@given(st.lists(PLAIN, min_size=1, max_size=6), st.booleans())
def test_without_tools_it_equals_the_models_own_template(
    messages: list[Message], reply: bool
) -> None:
    original = compile_template(ORIGINAL).render(messages=messages, add_generation_prompt=reply)
    assert render(messages, reply=reply) == original


ASSISTANT = st.builds(
    lambda content, calls: {"role": "assistant", "content": content, "tool_calls": calls},
    st.none() | TEXT,
    st.none()
    | st.lists(
        st.builds(call, st.sampled_from(["look", "save"]), st.just('{"q": 1}') | st.just({"q": 1})),
        max_size=3,
    ),
)
MESSAGE = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "developer"]), "content": TEXT}
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": TEXT, "content": TEXT}),
    ASSISTANT,
)


@given(st.lists(MESSAGE, min_size=2, max_size=8), st.sampled_from([None, [], TOOLS[:1], TOOLS]))
def test_a_longer_conversation_extends_the_shorter_one(
    messages: list[Message], tools: list[Any] | None
) -> None:
    whole = render(messages, tools)
    for n in range(1, len(messages)):
        shorter = render(messages[:n], tools)
        assert whole.startswith(shorter)
        assert len(whole) > len(shorter)
        if messages[n]["role"] == "assistant":
            assert whole.startswith(render(messages[:n], tools, reply=True))


@given(st.lists(MESSAGE, min_size=1, max_size=4))
def test_whitespace_settings_do_not_matter(messages: list[Message]) -> None:
    loose = compile_template(SOURCE, trim=False)
    assert loose.render(messages=messages, tools=TOOLS) == render(messages, TOOLS)


def test_tools_stand_before_the_system_text() -> None:
    def prompt(system: str) -> str:
        return render(
            [{"role": "system", "content": system}, {"role": "user", "content": "hi"}], TOOLS
        )

    shared = "Its result comes back between <tool_response> and </tool_response>.\n\n"
    one, two = prompt("Be brief."), prompt("Answer in French.")
    assert one.split(shared)[0] == two.split(shared)[0]
    assert "</tools>" in one.split(shared)[0]


def test_ids_are_not_rendered() -> None:
    def prompt(id_: str) -> str:
        made = {**call("look", {}), "id": id_}
        return render(
            [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [made]},
                {"role": "tool", "tool_call_id": id_, "content": "x"},
            ]
        )

    assert prompt("call_1") == prompt("call_2")


def test_content_none_missing_and_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "<|im_start|>user\nab<|im_end|>" in render([{"role": "user", "content": parts}])
    for message in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        assert render([message]).endswith("<|im_start|>assistant\n<|im_end|>\n")


def test_canonical_tools_render_as_one_line_each() -> None:
    tools = [canonical_tool(tool) for tool in TOOLS]
    block = (
        render([{"role": "user", "content": "x"}], tools)
        .split("<tools>\n")[1]
        .split("\n</tools>")[0]
    )
    assert [json.loads(line) for line in block.split("\n")] == TOOLS


def test_an_unknown_role_is_an_error() -> None:
    with pytest.raises(jinja2.TemplateError, match=r'roles system, .* not "wizard"'):
        render([{"role": "wizard", "content": "x"}])
