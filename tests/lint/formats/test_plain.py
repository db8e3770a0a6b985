"""Plain text: which syntax its holes have, and when it is a prompt at all."""

from __future__ import annotations

import pytest

from tests.lint.formats.file_help import claimed, holes, read, units

HEAD = "You are a helpful assistant. "


def syntax(text: str) -> str:
    (template,) = read("prompts/a.txt", HEAD + text).templates
    return template.syntax


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{user_name}", "format"),
        ("{user_name!r:>10} {a.b[0]}", "format"),
        ("{{user_name}}", "mustache"),
        ("{{#each docs}}{{this}}{{/each}} {x}", "mustache"),
        ("{{ user_name | upper }}", "jinja"),
        ("{% if x %}y{% endif %}", "jinja"),
        ("$user_name", "dollar"),
        ("${user_name} and $$5", "dollar"),
        ("costs $5 and $HOME", "none"),
        ('{"date": "2026-01-01"}', "none"),
        (r"\d{4}-\d{2}", "none"),
        ("{}", "none"),
    ],
)
def test_the_syntax_of_the_holes(text: str, expected: str) -> None:
    assert syntax(text) == expected


def test_doubled_braces_beside_single_ones_are_escapes() -> None:
    (template,) = read(
        "prompts/a.txt", HEAD + 'Write {{"date": 1}} or {{date}} for {question}.'
    ).templates
    assert units(template) == [
        ("text", HEAD + 'Write {"date": 1} or {date} for '),
        ("hole", "question"),
        ("text", "."),
    ]


def test_documented_syntax_is_no_hole() -> None:
    document = read(
        "prompts/a.txt", HEAD + 'Use {{!date}}, or {"date": "x"}.\n```\ndatetime.now()\n```\n'
    )
    assert not holes(document)


def test_names_and_attributes() -> None:
    found = holes(read("prompts/a.txt", HEAD + "{user[name]} {date} {chat_history}"))
    assert {n: h.level for n, h in found.items()} == {
        "user.name": "user",
        "date": "call",
        "chat_history": "turn",
    }
    assert not any(h.known for h in found.values())


def test_handlebars_sections() -> None:
    found = holes(
        read(
            "prompts/a.md",
            HEAD
            + "{{#if docs}}Read: {{#each docs}}{{title}}{{/each}}{{else}}none{{/if}}{{!-- {{now}} --}}",
        )
    )
    assert found["docs"].traits == {"conditional"}
    assert found["title"].level == "turn"
    assert "now" not in found


def test_comments() -> None:
    text = (
        HEAD
        + "\n<!-- agentkv: ignore[KV101] because -->\n{user_name}\n# agentkv: stable=tenant\n{email}\n{{! agentkv: nothing }}\n"
    )
    document = read("prompts/a.txt", text)
    assert [(s.line, s.codes, s.stable) for s in document.suppressions] == [
        (2, ("KV101",), None),
        (4, (), "tenant"),
    ]
    assert holes(document)["email"].level == "tenant"


def test_evidence_outside_of_prompt_folders() -> None:
    assert claimed("assistant.txt", HEAD + "Answer the user's question: {question}") == "text"
    assert claimed("src/agent/system.md", HEAD + "{{question}}") == "text"
    assert claimed("prompts/readme_writer.md", "Write a README for {project}.") == "text"


def test_a_prompt_may_quote_code() -> None:
    code = (
        HEAD
        + "Answer the user's question about code.\n" * 8
        + "\nimport os\ndef main():\n<div>x</div>\n{question}"
    )
    assert claimed("prompts/coder.txt", code) == "text"
    assert claimed("prompts/coder.j2", code) == "jinja"
    assert claimed("templates/page.j2", "<html><body>" + code) is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("README.md", HEAD + "{question}"),
        ("docs/guide.md", "# Guide\nSet `{name}` to the name. " * 20 + HEAD + "{question}"),
        ("requirements.txt", "torch=={version}\n"),
        ("CMakeLists.txt", "set(X ${Y})\n"),
        ("data/names.txt", "alpha\nbeta {x}\n"),
        ("locales/en.txt", "You are a guest, {name}"),
        ("letter.txt", "Dear {name},\nyou are receiving this letter. Kind regards"),
        ("notes/log.txt", "started at {time}\n"),
    ],
)
def test_texts_that_are_no_prompts_are_not_claimed(path: str, text: str) -> None:
    assert claimed(path, text) is None
