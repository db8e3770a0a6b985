from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agentkv.engine.errors import InvalidRequest, UnsupportedModel
from agentkv.engine.text.template import CallStyle, ChatTemplate

from .conftest import PLAIN_CHATML, TEMPLATE_FILES

USER = [{"role": "user", "content": "hi"}]
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <b>kind</b> & brief."},
    {"role": "user", "content": " Hello 日本\n"},
    {"role": "assistant", "content": "Well."},
    {"role": "user", "content": "Bye"},
]


def test_the_date_is_pinned_and_can_be_set() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    assert ChatTemplate(source).render(USER) == "26 Jul 2024"
    assert ChatTemplate(source, now=datetime(2026, 1, 2)).render(USER) == "02 Jan 2026"


@pytest.mark.parametrize("name", sorted(TEMPLATE_FILES))
def test_renders_as_transformers_does(traces: Path, name: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    source = (traces / "chat_templates" / TEMPLATE_FILES[name]).read_text("utf-8")
    named: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    template = ChatTemplate(source, named_tokens=named)
    tools = json.loads((traces / "tools" / "tau_airline_tools.json").read_text("utf-8"))
    for given in (None, tools):
        for generation in (False, True):
            want = render_jinja_template(
                [CHAT],
                tools=given,
                chat_template=source,
                add_generation_prompt=generation,
                **named,
            )[0]
            assert template.render(CHAT, given, add_generation_prompt=generation) == want[0]


def test_generation_tag_loop_controls_and_html_pass() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{% generation %}{{ m.content | tojson }}{% endgeneration %}{% endfor %}"
    )
    got = ChatTemplate(source).render([CHAT[0], {"role": "user", "content": "<é&'>"}])
    assert got == '"<é&\'>"'


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no system here') }}",
        "{{ messages[7].content.x }}",
        "{{ 1 + 'a' }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ dict.__class__.__mro__ }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxx{% endfor %}{% endfor %}",
    ],
)
def test_what_a_template_trips_over_is_a_refused_request(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ChatTemplate(source, max_output=100_000).render(USER)
    assert caught.value.param == "messages"


def test_a_template_that_does_not_compile_is_an_unsupported_model() -> None:
    with pytest.raises(UnsupportedModel, match="does not compile"):
        ChatTemplate("{% for %}")


@pytest.mark.parametrize(
    "name",
    [
        *("messages", "tools", "tokenize", "add_generation_prompt", "chat_template", "bos_token"),
        *("strftime_now", "raise_exception", "not a name", "__class__", "_x", "", "a.b"),
    ],
)
def test_template_kwargs_replace_nothing_of_ours(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ChatTemplate("x").check_kwargs({name: True})
    assert caught.value.param == "chat_template_kwargs"


def test_template_kwargs_reach_the_template() -> None:
    template = ChatTemplate("{{ enable_thinking }}")
    kwargs = template.check_kwargs({"enable_thinking": False})
    assert template.render(USER, template_kwargs=kwargs) == "False"


def test_what_templates_can_do_is_found_by_trying(traces: Path, tools_template: str) -> None:
    def load(name: str) -> ChatTemplate:
        return ChatTemplate((traces / "chat_templates" / TEMPLATE_FILES[name]).read_text("utf-8"))

    assert load("qwen").call_style() == CallStyle(text_arguments=False, null_content=False)
    assert load("deepseek").call_style() == CallStyle(text_arguments=True, null_content=True)
    assert load("mistral").call_style() == CallStyle(text_arguments=False, null_content=False)
    assert load("qwen").renders_tools() and not load("deepseek").renders_tools()
    phi = load("phi")
    assert not (phi.renders_tools() or phi.renders_calls() or phi.renders_role("tool"))
    assert phi.renders_role("system")
    ours = ChatTemplate(tools_template)
    assert ours.renders_tools() and ours.renders_calls()
    assert all(ours.renders_role(r) for r in ("system", "user", "assistant", "tool"))


def test_loads_from_each_place(tmp_path: Path) -> None:
    assert ChatTemplate.load(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "A{{ eos_token }}"}))
    made = ChatTemplate.load(tmp_path, {"eos_token": "E"})
    assert made is not None and made.render(USER) == "AE"
    both = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T{{ tools }}"}]
    config.write_text(json.dumps({"chat_template": both}))
    made = ChatTemplate.load(tmp_path)
    assert made is not None
    assert made.render(USER) == "D" and made.render(USER, [{"type": "function"}])[0] == "T"
    (tmp_path / "chat_template.jinja").write_text(PLAIN_CHATML)
    made = ChatTemplate.load(tmp_path)
    assert made is not None
    assert made.render(USER) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    config.write_text("[")
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(UnsupportedModel):
        ChatTemplate.load(tmp_path)
