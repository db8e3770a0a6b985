"""Prompty, Dotprompt, Semantic Kernel, CrewAI, promptfoo, LangChain files and YAML of prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkv.lint.template import Text
from tests.lint.formats.file_help import claimed, holes, read, roles, units

# -- Prompty --------------------------------------------------------------------------------------

PROMPTY = """---
name: Desk
inputs:
  question: {type: string, sample: "Where is my order?"}
  history:
    type: thread
  region:
    type: string
    default: ${env:REGION}
---
system:
You are a helpful assistant of {{ region }}. It is {{ now() }}. Never print ${env:KEY}.

{% for item in history %}
{{ item.role }}:
{{ item.content }}
{% endfor %}

user:
{{ question }}
"""


def test_prompty() -> None:
    document = read("desk.prompty", PROMPTY)
    assert roles(document) == [("system", False), ("unknown", True), ("user", False)]
    (template,) = document.templates
    assert template.name == "Desk" and not template.followed
    found = holes(document)
    assert (found["region"].level, found["region"].known) == ("deploy", True)
    assert found["question"].example == "Where is my order?"
    assert found["now"].known and "history" in found["history"].traits
    assert "KEY" not in found


def test_prompty_version_2() -> None:
    text = """---
name: v2
inputs:
  - name: question
    kind: string
  - name: thread
    kind: thread
template:
  format:
    kind: mustache
---
system:
You are a helpful assistant. {{#context}}{{.}}{{/context}}
user:
{{question}}
"""
    document = read("v2.prompty", text)
    (template,) = document.templates
    assert template.syntax == "mustache"
    assert template.followed  # a thread that the text does not place
    assert roles(document) == [("system", False), ("user", False)]


def test_prompty_without_front_matter_or_roles() -> None:
    assert roles(read("a.prompty", "You are a helpful assistant. {{ question }}")) == [
        ("system", False)
    ]
    assert read("a.prompty", "").templates == ()
    assert read("a.prompty", "---\nname: [\n---\nsystem:\nHi {{ x }}\n").templates


def test_a_role_word_inside_a_line_begins_no_message() -> None:
    document = read(
        "a.prompty",
        "---\nname: x\n---\nsystem:\nThe user: is always right.\nsay user: hello\n{{ x }}\n",
    )
    assert roles(document) == [("system", False)]


# -- Dotprompt ------------------------------------------------------------------------------------


def test_dotprompt() -> None:
    text = """---
model: vendor/model
input:
  schema: {question: string}
  default: {shop: Tulip}
---
{{role "system"}}
You are a helpful assistant of {{shop}}. {{#each documents}}{{title}}{{/each}}
{{history}}
{{role "user"}}
{{media url=photo}} {{question}}
"""
    document = read("desk.prompt", text)
    assert document.format == "dotprompt"
    assert roles(document) == [("system", False), ("unknown", True), ("user", False)]
    found = holes(document)
    assert found["shop"].example == "Tulip"
    assert found["title"].level == "turn" and "image" in found["photo"].traits


def test_dotprompt_without_roles_is_the_users() -> None:
    assert roles(read("a.prompt", "---\nmodel: x/y\n---\nTranslate {{text}}.")) == [("user", False)]


# -- Semantic Kernel ------------------------------------------------------------------------------


def test_semantic_kernel_text() -> None:
    text = """<message role="system">
You are {{$botName}}. It is {{time.Now}}, {{time.Date}}. {{recall $input}} {{mail.last '5' $user}}
</message>
{{$history}}
<message role="user">{{$input}}</message>
"""
    document = read("Plugins/Desk/Sort/skprompt.txt", text)
    assert document.templates[0].name == "Sort"
    assert roles(document) == [("system", False), ("unknown", True), ("user", False)]
    found = holes(document)
    assert found["time.Now"].traits == {"clock"} and found["time.Now"].known
    assert found["time.Date"].traits == {"date"}
    assert "context" in found["recall"].traits
    assert found["user"].level == "user"


def test_semantic_kernel_reads_the_configuration_beside_it(tmp_path: Path) -> None:
    """The template's format, its name, and values of variables; a broken one changes nothing."""
    folder = tmp_path / "Sort"
    folder.mkdir()
    prompt = folder / "skprompt.txt"
    prompt.write_text("You help {{$shop}}.\n{{#if vip}}Be quick.{{/if}}\n{{$input}}")
    plain = read(str(prompt), prompt.read_text())
    assert plain.templates[0].name == "Sort" if plain.templates else plain.skipped
    config = {
        "schema": 1,
        "name": "SortMail",
        "template_format": "handlebars",
        "input_variables": [{"name": "shop", "default": "Boat & Sail"}],
    }
    (folder / "config.json").write_text(json.dumps(config))
    prompt.write_text("You help {{shop}}.\n{{#if vip}}Be quick.{{/if}}\n{{input}}")
    document = read(str(prompt), prompt.read_text())
    assert document.templates[0].name == "SortMail"
    assert holes(document)["shop"].example == "Boat & Sail"
    assert any("conditional" in h.traits for h in holes(document).values())
    old = {"schema": 1, "input": {"parameters": [{"name": "shop", "defaultValue": "Oar"}]}}
    (folder / "config.json").write_text(json.dumps(old))
    prompt.write_text("You help {{$shop}}.\n{{$input}}")
    assert holes(read(str(prompt), prompt.read_text()))["shop"].example == "Oar"
    (folder / "config.json").write_text("{")
    assert holes(read(str(prompt), prompt.read_text()))["shop"].example is None


def test_semantic_kernel_yaml() -> None:
    text = """name: Desk
template_format: handlebars
template: |
  <message role="system">
    You are a helpful assistant of {{customer.firstName}}.
  </message>
  {{#each history}}
  <message role="{{role}}">{{content}}</message>
  {{/each}}
input_variables:
  - name: customer
"""
    document = read("desk.yaml", text)
    assert document.templates[0].name == "Desk"
    assert roles(document) == [("system", False), ("unknown", True)]
    assert (
        read(
            "desk.yaml",
            text.replace("handlebars", "liquid")
            .replace("{{#each history}}", "")
            .replace("{{/each}}", ""),
        )
        .templates[0]
        .syntax
        == "jinja"
    )


# -- CrewAI ---------------------------------------------------------------------------------------


def test_crewai() -> None:
    text = """researcher:
  role: >
    {topic} researcher
  goal: Find out about {topic}
  backstory: |
    You know every archive. It is {{ current_year }}.
"""
    document = read("config/agents.yaml", text)
    (template,) = document.templates
    assert template.name == "researcher"
    rendered = "".join(v if k == "text" else "{" + v + "}" for k, v in units(template))
    assert (
        rendered
        == "You are {topic} researcher\n. You know every archive. It is {current_year}.\n\nYour personal goal is: Find out about {topic}"
    )
    tasks = "look:\n  description: >\n    Look for {topic}\n  expected_output: a list\n  agent: researcher\n"
    assert roles(read("config/tasks.yaml", tasks)) == [("user", False)]


# -- promptfoo ------------------------------------------------------------------------------------

PROMPTFOO = """prompts:
  - |
    You are the bot of {{brand}}. {{question}} {% raw %}{{x}}{% endraw %} {{date}} {{only_once}}
  - '[{"role": "system", "content": "Hi \\"{{brand}}\\"\\n"}, {"role": "user", "content": "{{question}}"}]'
  - |-
    - role: system
      content: You are a bot.
    - role: user
      content: "{{question}}"
  - file://prompts/a.txt
providers: [vendor:model]
defaultTest:
  vars: {tone: kind}
tests:
  - vars: {brand: Tulip, question: one, date: 2026-01-01}
  - vars: {brand: Tulip, question: two, date: 2026-01-01, only_once: x}
"""


def test_promptfoo() -> None:
    document = read("promptfooconfig.yaml", PROMPTFOO)
    assert [t.name for t in document.templates] == ["prompt 1", "prompt 2", "prompt 3"]
    assert roles(document) == [
        ("unknown", False),
        ("system", False),
        ("user", False),
        ("system", False),
        ("user", False),
    ]
    found = holes(document)
    assert (found["brand"].level, found["brand"].known, found["brand"].example) == (
        "deploy",
        True,
        "Tulip",
    )
    assert (found["question"].level, found["question"].known) == ("turn", True)
    assert found["date"].level == "call"  # tests pin the date, traffic does not
    assert not found["only_once"].known and "x" not in found
    assert units(document.templates[1])[0] == ("text", 'Hi "')
    assert any("file" in n for n in document.notes)


def test_promptfoo_values_in_lists_are_several() -> None:
    text = "prompts: ['You are a bot of {{brand}}']\ntests:\n  - vars:\n      brand: [a, b]\n"
    assert holes(read("promptfooconfig.yaml", text))["brand"].level == "turn"


def test_promptfoo_tells_of_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "promptfooconfig.yaml").write_text(PROMPTFOO)
    (tmp_path / "prompts").mkdir()
    text = "You are the bot of {{brand}}. {{question}}"
    named = holes(read(str(tmp_path / "prompts" / "a.txt"), text, root=tmp_path))
    assert (named["brand"].level, named["brand"].why) == ("deploy", "one value in all tests")
    other = holes(read(str(tmp_path / "prompts" / "b.txt"), text, root=tmp_path))
    assert not other["brand"].known


# -- LangChain ------------------------------------------------------------------------------------


def lc(kind: str, **kwargs: object) -> dict[str, object]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", kind], "kwargs": kwargs}


def test_langchain_constructor() -> None:
    chat = lc(
        "ChatPromptTemplate",
        messages=[
            lc(
                "SystemMessagePromptTemplate",
                prompt=lc(
                    "PromptTemplate",
                    template='You are "{persona}" of {brand}. {{x}}',
                    input_variables=[],
                ),
            ),
            lc("MessagesPlaceholder", variable_name="history"),
            lc(
                "HumanMessagePromptTemplate",
                prompt=lc("PromptTemplate", template="{{ question }}", template_format="jinja2"),
            ),
        ],
        partial_variables={"brand": "Tulip"},
    )
    document = read(
        "chain.json",
        json.dumps({"lc": 1, "id": ["x", "LLMChain"], "kwargs": {"prompt": chat}}, indent=1),
    )
    assert roles(document) == [("system", False), ("unknown", True), ("user", False)]
    found = holes(document)
    assert (found["brand"].level, found["brand"].known) == ("build", True)
    assert found["question"].level == "turn" and "x" not in found


def test_langchain_few_shot_yaml() -> None:
    text = """_type: few_shot
input_variables: [question]
prefix: Answer the question of {user_name}.
examples:
  - {question: a, answer: b}
suffix: "Question: {question}\\n"
"""
    (template,) = read("shots.yaml", text).templates
    assert units(template) == [
        ("text", "Answer the question of "),
        ("hole", "user_name"),
        ("text", ".abQuestion: "),
        ("hole", "question"),
        ("text", "\n"),
    ]


# -- YAML of prompts, Haystack --------------------------------------------------------------------


def test_yaml_of_prompts() -> None:
    text = """system_prompt: |-
  You are a helpful assistant that solves a task.
  {%- for tool in tools.values() %}
  - {{ tool.name }}
  {%- endfor %}
  Now: {{ task }}
retries: 3
messages:
  - role: system
    content: You are a helpful assistant for {{ user_name }}, and you know the rules.
  - role: user
    content: "{{ question }}"
"""
    document = read("prompts/agent.yaml", text)
    assert [t.name for t in document.templates] == ["system_prompt", "messages"]
    assert roles(document) == [("system", False), ("system", False), ("user", False)]
    assert holes(document)["tools"].level == "deploy"


def test_haystack_pipeline() -> None:
    text = """components:
  prompt_builder:
    type: haystack.components.builders.prompt_builder.PromptBuilder
    init_parameters:
      template: |
        Answer the question with the documents below, and with nothing else.
        {% for d in documents %}{{ d.content }}{% endfor %}
        Question: {{ question }}
"""
    document = read("pipeline.yaml", text)
    assert document.templates[0].name == "components.prompt_builder.init_parameters.template"
    assert holes(document)["documents"].level == "turn"


def test_comments_in_yaml() -> None:
    text = "system_prompt: |  # agentkv: ignore[KV2] why not\n  You are a helpful assistant of {user_name}.\n# agentkv: stable=deploy\nuser_prompt: 'Please answer the question of {user_name}: {question}'\n"
    document = read("prompts/a.yaml", text)
    assert [(s.line, s.codes, s.alone, s.stable) for s in document.suppressions] == [
        (1, ("KV2",), False, None),
        (3, (), True, "deploy"),
    ]
    first, second = document.templates
    assert [h.level for _, _, h in first.holes()] == ["user"]
    assert [h.level for _, _, h in second.holes()] == ["deploy", "deploy"]


def test_a_broken_yaml_file_is_skipped_with_the_reason() -> None:
    document = read("prompts/a.yaml", "system_prompt: You are a helpful assistant\n bad: [\n")
    assert document.skipped and not document.templates


def test_aliases_and_deep_nesting_end() -> None:
    assert (
        read(
            "prompts/a.yaml", "prompt: &a [*a, You are a helpful assistant of {x}, please]\n"
        ).templates
        is not None
    )
    assert (
        read(
            "prompts/a.yaml", "prompt: " + "[" * 3000 + "\n# You are a helpful assistant\n"
        ).templates
        == ()
    )


# -- guides ---------------------------------------------------------------------------------------


def test_a_guide_has_only_what_the_day_changes() -> None:
    document = read(
        "CLAUDE.md",
        "# Rules\nUse {x} and {{ now() }}. Last updated: 2026-01-01 10:00:00.\nThe current time is 2026-09-11T08:00:00Z.\n```\nnow: 2026-09-11T08:00:00Z\n```\n",
    )
    assert [(h.expr, h.level) for h in holes(document).values()] == [
        ("2026-09-11T08:00:00Z", "call")
    ]
    assert isinstance(document.templates[0].parts[0].pieces[-1], Text)


# -- what is none of these ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docker-compose.yml", "services:\n  web:\n    image: x\n    command: echo {now}\n"),
        (
            ".github/workflows/ci.yml",
            "name: CI\non: push\njobs:\n  a:\n    steps:\n      - run: echo '${{ github.sha }}'\n",
        ),
        (
            "openapi.yaml",
            "openapi: 3.0.0\ninfo:\n  description: You are an API user. Answer the question.\n",
        ),
        ("playbook.yml", "- hosts: all\n  tasks:\n    - name: x\n      template: {src: a}\n"),
        (
            "chart/templates/a.yaml",
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: {{ .Values.x }}\n",
        ),
        ("agents.yaml", "datadog:\n  hosts: [a, b]\n"),
        ("tasks.yaml", "build:\n  cmds: [make]\n  desc: x\n"),
        ("locales/en.yaml", "greeting: You are an admin, %{name}\nprompt: Enter your name\n"),
        ("mkdocs.yml", "site_name: You are a reader\nnav: []\n"),
        ("a.json", '{"messages": {"hello": "You are a guest"}}'),
    ],
)
def test_other_yaml_and_json_is_not_claimed(path: str, text: str) -> None:
    assert claimed(path, text) is None


def test_blank_text_between_holes_is_kept() -> None:
    for path, text in (
        ("a.prompty", "{{ x }} {{ y }}"),
        ("a.prompt", "---\nmodel: a/b\n---\n{{x}} {{y}} "),
    ):
        (template,) = read(path, text).templates
        assert units(template)[:3] == [("hole", "x"), ("text", " "), ("hole", "y")]
