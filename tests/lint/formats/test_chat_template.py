"""Chat templates: dates that they add, old turns that they change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lint.formats.file_help import claimed, holes, read, roles

TRACES = Path(__file__).parents[3].parent / "shared" / "traces" / "chat_templates"

DATE = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""

PINNED = DATE.replace('strftime_now("%d %b %Y")', '"26 Jul 2024"')

THINK = """{%- set ns = namespace(last_query_index=0) %}
{%- for message in messages %}
{%- if message.role == "assistant" %}
{%- if loop.index0 > ns.last_query_index %}<|assistant|><think>{{ message.reasoning_content }}</think>{{ message.content }}
{%- else %}<|assistant|>{{ message.content }}{%- endif %}
{%- else %}<|{{ message.role }}|>{{ message.content }}{%- endif %}
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""

TAIL = """{{ bos_token }}{%- for message in messages %}
{%- if tools and loop.last %}[TOOLS]{{ tools | tojson }}[/TOOLS]{%- endif %}
[INST]{{ message.content }}[/INST]{%- endfor %}"""

GENERATION = """{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}
{%- if loop.last and add_generation_prompt %}<|assistant|>{% endif %}{%- endfor %}"""

FIRST = """{%- for message in messages %}{%- if loop.first and tools %}{{ tools | tojson }}{%- endif %}<|{{ message.role }}|>{{ message.content }}{%- endfor %}"""


def kinds(text: str) -> list[str]:
    (request,) = read("m/chat_template.jinja", text).requests
    assert request.api == "chat_template" and request.template is not None
    return [op.kind for op in request.history]


def test_a_date_that_the_template_takes_from_the_clock() -> None:
    hole = holes(read("chat_template.jinja", DATE))["date_string"]
    assert (hole.level, hole.known, hole.traits, hole.why) == (
        "call",
        True,
        {"date"},
        "strftime_now()",
    )


def test_a_pinned_date_is_fixed() -> None:
    found = holes(read("chat_template.jinja", PINNED))
    assert all(h.level != "call" for h in found.values())


def test_the_messages_are_a_placeholder_and_the_rest_is_the_callers() -> None:
    document = read("chat_template.jinja", DATE)
    assert roles(document) == [("unknown", False), ("unknown", True), ("unknown", False)]
    assert holes(document)["bos_token"].level == "deploy"
    (template,) = document.templates
    assert template.followed and document.requests[0].template is template


def test_what_is_done_to_old_turns() -> None:
    assert kinds(THINK) == ["reasoning_stripped"]
    assert kinds(TAIL) == ["tail_dependent"]
    assert kinds(GENERATION) == kinds(FIRST) == kinds(DATE) == []


def test_an_operation_points_at_its_tag() -> None:
    text = json.dumps({"chat_template": THINK})
    document = read("m/tokenizer_config.json", text)
    (op,) = document.requests[0].history
    assert text[op.slice.start : op.slice.end] == "{%- if loop.index0 > ns.last_query_index %}"


@pytest.mark.parametrize("escaped", [True, False])
def test_templates_in_json(escaped: bool) -> None:
    several = json.dumps(
        {
            "chat_template": [
                {"name": "default", "template": DATE + "é"},
                {"name": "tool_use", "template": THINK},
            ]
        },
        ensure_ascii=escaped,
    )
    document = read("tokenizer_config.json", several)
    assert [t.name for t in document.templates] == [
        "chat_template default",
        "chat_template tool_use",
    ]
    assert holes(document)["date_string"].traits == {"date"}
    assert read("tokenizer_config.json", '{"model_max_length": 1}').templates == ()
    assert read("tokenizer_config.json", '{"model_max_length": ').skipped


def test_claims() -> None:
    assert claimed("x/qwen.jinja", THINK + "{{ bos_token }}") == "chat_template"
    assert claimed("chat_template.jinja", "x") == "chat_template"
    assert (
        claimed(
            "x/messages.html.jinja",
            "<div>{% for message in messages %}<p>{{ message }}</p>{% endfor %}</div>",
        )
        is None
    )


@pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not here")
def test_real_templates() -> None:
    """As measured: Mistral-Nemo keeps 61 % of the previous prompt, the others all of it; R1 drops
    thoughts."""
    found = {p.name: kinds(p.read_bytes().decode()) for p in sorted(TRACES.glob("*.jinja"))}
    assert found == {
        "Qwen-Qwen2.5-7B-Instruct.jinja": [],
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja": ["reasoning_stripped"],
        "microsoft-Phi-3.5-mini-instruct.jinja": [],
        "mistralai-Mistral-Nemo-Instruct-2407.jinja": ["tail_dependent"],
    }
