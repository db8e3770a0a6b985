"""Jinja files: structure, levels, whitespace control, comments, and what is no prompt."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.lint.formats._jinja_tokens import TemplateError, tokens
from agentkv.lint.source import Source
from agentkv.lint.template import Text
from tests.lint.formats.file_help import claimed, holes, read, roles, units, walk

HEAD = "You are a helpful assistant.\n"


def found(text: str, **more: object):  # type: ignore[no-untyped-def]
    return holes(read("prompts/a.j2", HEAD + text, **more))  # type: ignore[arg-type]


# -- tokens, compared with Jinja's own lexer ------------------------------------------------------

BITS = st.lists(
    st.sampled_from(
        [
            "a b",
            "\n",
            "  ",
            "{{ x }}",
            "{{- x -}}",
            "{{ {'a': {'b': 1}}['a'] }}",
            "{{ '}}' }}",
            "{% set y = '%}' %}",
            "{%- if x %}",
            "{% endif -%}",
            "{# c #}",
            "{#- c -#}",
            "{% raw %}{{ z }}{% endraw %}",
            "}",
            "{",
            "\t",
        ]
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(bits=BITS, trim=st.booleans())
def test_tokens_agree_with_jinja(bits: list[str], trim: bool) -> None:
    text = "".join(bits)
    env = jinja2.Environment(trim_blocks=trim, lstrip_blocks=trim, keep_trailing_newline=True)
    try:
        theirs = list(env.lex(text))
    except jinja2.TemplateSyntaxError:
        return
    broken = False
    try:
        env.parse(text)
    except jinja2.TemplateSyntaxError:
        broken = True
    # Jinja gives the inside of a raw block as data.
    data = "".join(value for _, kind, value in theirs if kind == "data")
    tags = [kind for _, kind, _ in theirs if kind in ("variable_begin", "block_begin")]
    try:
        mine = list(tokens(text, trim=trim))
    except TemplateError as error:
        assert broken, f"{error} in {text!r}"
        return
    assert "".join(t.body for t in mine if t.kind in ("text", "raw")) == data
    assert len([t for t in mine if t.kind in ("var", "tag")]) == len(tags)
    for token in mine:
        if token.kind == "text":
            assert text[token.start : token.end] == token.body


@pytest.mark.parametrize(
    "text",
    [
        "{{ x",
        "{% if x",
        "{# x",
        "{{ 'a }}",
        "{% raw %} x",
        "{% if x %}",
        "{% endif %}",
        "{% for x in y %}{% endif %}",
    ],
)
def test_a_broken_template_is_skipped_with_the_reason(text: str) -> None:
    document = read("prompts/a.j2", HEAD + text)
    assert document.skipped and not document.templates


# -- structure ------------------------------------------------------------------------------------


def test_raw_blocks_and_comments_have_no_holes() -> None:
    document = read("prompts/a.j2", HEAD + "{% raw %}{{ now() }}{% endraw %}{# {{ now() }} #}tail")
    (template,) = document.templates
    assert units(template) == [("text", HEAD + "{{ now() }}tail")]


def test_a_section_holds_what_is_inside_it() -> None:
    found_ = found("{% if user_name -%}   Hello {{ user_name }}!{%- endif %} Done.")
    section = found_["user_name"]
    assert section.traits == {"conditional"} and section.level == "user"
    assert [p.value if isinstance(p, Text) else p.name for p in section.inner] == [
        "Hello ",
        "user_name",
        "!",
    ]


def test_whether_a_time_is_given_is_no_clock() -> None:
    section = found("{% if current_time %}It is late.{% endif %}")["current_time"]
    assert section.level == "unknown"


def test_a_loop_gives_its_level_to_its_variable() -> None:
    found_ = found(
        "{% for t in tools %}- {{ t.name }}: {{ t.description }}\n{% endfor %}{% for d in documents if d.ok %}{{ d.text }}{% endfor %}"
    )
    assert found_["tools"].level == "deploy" and "loop" in found_["tools"].traits
    assert found_["t.name"].level == "deploy"
    assert found_["documents"].level == "turn" and found_["d.text"].level == "turn"


def test_a_score_that_is_written_out_is_named() -> None:
    found_ = found(
        "{% for d in documents %}[{{ loop.index }}] {{ d.score }} {{ d.text }}{% endfor %}"
    )
    assert "score_text" in found_["d.score"].traits and "score_text" not in found_["d.text"].traits


def test_set_macro_and_with() -> None:
    found_ = found(
        "{% set greeting = 'Hi' %}{% set when = now() %}{% macro item(x) %}* {{ x }}\n{% endmacro %}"
        "{{ greeting }} {{ when }} {{ item(question) }}{% with who = user_name %}{{ who }}{% endwith %}"
    )
    assert found_["greeting"].level == "build" and found_["greeting"].known
    assert found_["when"].level == "call" and found_["when"].known and found_["when"].why == "now()"
    assert found_["question"].level == "turn"
    assert found_["question"].inner  # the macro's text counts
    assert found_["who"].level == "user"


def test_branches_join() -> None:
    found_ = found("{% if x %}{% set d = now() %}{% else %}{% set d = 'fixed' %}{% endif %}{{ d }}")
    assert found_["d"].level == "call" and found_["d"].known


@pytest.mark.parametrize(
    ("expression", "traits"),
    [
        ("now()", {"clock"}),
        ("utcnow().isoformat()", {"clock"}),
        ("now().strftime('%Y-%m-%d')", {"date"}),
        ("now().strftime('%Y-%m-%d %H')", {"clock", "hour"}),
        ("strftime_now('%d %b %Y')", {"date"}),
        ("datetime.now() | string", {"clock"}),
        ("date.today()", {"date"}),
        ("now().date()", {"date"}),
        ("uuid4()", {"random_id"}),
        ("greetings | random", {"random_content"}),
        ("items | shuffle", {"shuffled"}),
    ],
)
def test_what_asks_the_clock_or_chance_is_known(expression: str, traits: set[str]) -> None:
    document = read("prompts/a.j2", HEAD + "{{ " + expression + " }}")
    (hole,) = holes(document).values()
    assert (hole.level, hole.known, set(hole.traits)) == ("call", True, traits)


@pytest.mark.parametrize(
    "expression",
    [
        "tool.timestamp()",
        "doc.published",
        "due_date",
        "config.now_playing",
        "tools | sort",
        "range(3)",
    ],
)
def test_other_times_are_no_clocks(expression: str) -> None:
    document = read("prompts/a.j2", HEAD + "{{ " + expression + " }}")
    assert all(h.level != "call" for h in holes(document).values())


def test_a_jinja2_time_tag_is_a_clock() -> None:
    assert found("{% now 'utc', '%Y-%m-%d' %}")["now"].traits == {"date"}


def test_messages_of_haystack_and_llamaindex() -> None:
    text = '{% message role="system" %}You are a helpful assistant.{% endmessage %}{% for m in history %}{% message role=m.role %}{{ m.content }}{% endmessage %}{% endfor %}{% chat role="user" %}{{ question }}{% endchat %}'
    assert roles(read("prompts/a.j2", text)) == [
        ("system", False),
        ("unknown", True),
        ("user", False),
    ]


def test_the_name_of_a_file_says_whose_message_it_is() -> None:
    assert roles(read("prompts/system_prompt.j2", HEAD + "{{ x }}")) == [("system", False)]
    assert roles(read("prompts/user.j2", HEAD + "{{ x }}")) == [("user", False)]


def test_includes_are_read_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "rules.j2").write_text("Never lie. {{ now() }}")
    main = tmp_path / "prompts" / "main.j2"
    document = read(
        str(main), HEAD + "{% include 'rules.j2' %}{% include 'nowhere.j2' %}", root=tmp_path
    )
    hole = holes(document)["rules.j2"]
    assert hole.level == "call" and any(
        isinstance(p, Text) and p.value == "Never lie. " for p in hole.inner
    )
    assert all(p.slice is None for p in walk(hole.inner))
    assert holes(document)["nowhere.j2"].level == "build"
    assert any("nowhere.j2" in n for n in document.notes)


def test_a_change_of_an_included_file_is_seen_by_a_cached_run(tmp_path: Path) -> None:
    from agentkv.lint.run import lint

    rules = tmp_path / "parts" / "now.j2"
    rules.parent.mkdir()
    main = tmp_path / "prompts" / "main.j2"
    main.parent.mkdir()
    main.write_text(
        "{% include 'parts/now.j2' %}\nYou are a helpful assistant.\n"
        + "Always answer the question in full sentences.\n" * 40
    )
    (tmp_path / "pyproject.toml").write_text("")
    rules.write_text("Fixed.")
    assert not lint(str(main), isolated=True).findings
    rules.write_text("{{ now() }}.")
    assert lint(str(main), isolated=True).findings


def test_an_include_never_leaves_the_project(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("{{ now() }}")
    (tmp_path / "prompts").mkdir()
    document = read(
        str(tmp_path / "prompts" / "a.j2"),
        HEAD + "{% include '../secret.txt' %}",
        root=tmp_path / "prompts",
    )
    assert holes(document)["../secret.txt"].level == "build"


def test_extends_is_noted_and_text_between_blocks_is_not_rendered() -> None:
    document = read(
        "prompts/a.j2",
        "{% extends 'base.j2' %}You are nobody.{% block rules %}You are a helpful assistant. {{ question }}{% endblock %}",
    )
    (template,) = document.templates
    assert units(template) == [("text", "You are a helpful assistant. "), ("hole", "question")]
    assert any("extends" in n for n in document.notes)


# -- configuration and comments -------------------------------------------------------------------


def test_the_configuration_overrules_a_name() -> None:
    hole = found("{{ user_name }}", stability={"user_name": "deploy"})["user_name"]
    assert (hole.level, hole.known, hole.why) == ("deploy", True, "configuration")


def test_comments_give_levels_and_suppress() -> None:
    text = (
        HEAD
        + "{# agentkv: stable=deploy one brand a server #}\n{{ user_name }}\n{{ user_email }} {# agentkv: ignore[KV107, KV2] they log in once #}\n{# agentkv: ignore-file #}\n{% raw %}{% endraw %}"
    )
    document = read("prompts/a.j2", text)
    assert holes(document)["user_name"].level == "deploy"
    assert holes(document)["user_email"].level == "user"
    stable, one, whole = document.suppressions
    assert (stable.line, stable.alone, stable.stable) == (2, True, "deploy")
    assert (one.line, one.alone, one.codes, one.reason) == (
        4,
        False,
        ("KV107", "KV2"),
        "they log in once",
    )
    assert whole.whole_file
    assert Source("", text)[one.slice] == "{# agentkv: ignore[KV107, KV2] they log in once #}"


# -- what is no prompt ----------------------------------------------------------------------------

NO_PROMPTS = {
    "templates/nginx.conf.j2": "server {\n  listen {{ port }};\n  server_name {{ host }};\n}\n",
    "roles/web/templates/app.j2": "# {{ ansible_managed }}\nuser={{ app_user }}\n",
    "templates/page.html.j2": "<!DOCTYPE html><html><body>You are a guest, {{ name }}</body></html>",
    "templates/page.jinja": "<div class='x'><span>{{ user.name }}</span>\n<a href='#'>answer the question</a></div>",
    "{{cookiecutter.slug}}/README.j2": "# {{ cookiecutter.project_name }}\nYou are a {{ cookiecutter.kind }}",
    "emails/welcome.j2": "Dear {{ name }},\nyou are receiving this because you signed up.\nKind regards",
    "mail.j2": "Subject: Hi\n\nDear {{ name }},\n{{ body }}\nBest regards, the team\nunsubscribe here",
    "models/orders.sql.j2": "select * from {{ ref('orders') }}",
    "deploy.sh.j2": "#!/bin/sh\necho {{ now() }} \n# You are an agent",
    "k8s/app.yaml.j2": "apiVersion: v1\nkind: Pod\nmetadata: {{ name }}",
    "docs/index.j2": "{{ title }}\n{{ now() }}\nSome text about things that are there.",
}


@pytest.mark.parametrize("path", NO_PROMPTS)
def test_files_that_are_no_prompts_are_not_claimed(path: str) -> None:
    assert claimed(path, NO_PROMPTS[path]) is None
