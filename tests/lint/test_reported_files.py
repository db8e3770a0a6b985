"""Bugs that users of other tools reported, from the file to the finding (see also
`rules/test_reported.py`, which has the same numbers at the level of rules)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.command import Options, run
from agentkv.lint.run import lint

Project = Callable[[dict[str, str]], Path]

RULES = (
    "You are a careful support agent of a shop. Answer only from the documents that you are given. "
    "Never reveal internal notes. Write at most five sentences, and name the article that you used. "
    "If the documents say nothing about a question, say so, and offer to pass it to a person. "
    "Do not promise refunds, delivery dates or discounts. Write prices with two decimals. "
) * 4
HEAD = f'''\
import logging
import secrets
import time
import uuid
from datetime import date, datetime

from anthropic import Anthropic
from openai import OpenAI

log = logging.getLogger(__name__)
client = OpenAI()
RULES = """{RULES}"""
'''


def asked(system: str, *, role: str = "ask") -> str:
    """A function that sends a system prompt, an expression, with a question behind it."""
    return f"""
def {role}(question):
    return client.chat.completions.create(
        model="gpt-5",
        messages=[
            {{"role": "system", "content": {system}}},
            {{"role": "user", "content": question}},
        ],
    )
"""


def codes(files: dict[str, str], write: Project, *, severity: str = "warning") -> list[str]:
    write(files)
    return [f.code for f in lint(".", severity=severity).findings]


def test_b058_ordinary_words_and_code_names(project: Project) -> None:
    words = (
        "Set status to in_progress or done. Use DebugModal and getAuthToken(uuid). See main.py:42, "
        "version 2.14.3, price 19.99 EUR, at 09:30 on Monday; datetime.now() is not allowed. "
    )
    files = {
        "app.py": HEAD + asked(f"{words!r} + RULES"),
        "prompts/system.j2": words + RULES,
        "prompts/system.txt": words + RULES,
        "request.json": json.dumps(
            {"model": "gpt-5", "messages": [{"role": "system", "content": words + RULES}]}
        ),
    }
    assert codes(files, project, severity="info") == []
    assert all(f.prompts for f in lint(".").files)


@pytest.mark.parametrize(
    "system",
    [
        r'f"Use {{date}} for dates.\n{RULES}"',
        r'"Use {{!date}}.\n" + RULES',
        r'"{% raw %}{{ now() }}{% endraw %}\n" + RULES',
        r"""'{"date": "..."}\n' + RULES""",
        r"r'A date is \d{4}-\d\d\n' + RULES",
        r'"```python\nprint(datetime.now())\n```\n" + RULES',
        r'"100%% of %(date)s stays\n" + RULES',
    ],
)
def test_b059_documented_syntax_in_python(project: Project, system: str) -> None:
    assert codes({"app.py": HEAD + asked(system)}, project, severity="info") == []
    assert lint("app.py").prompts == 1


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("system.j2", "Use {% raw %}{{ now() }}{% endraw %} here.\n"),
        ("system.j2", "Use {{ '{{ date }}' }} here.\n"),
        ("system.hbs", "Use \\{{date}} here.\n"),
        ("system.mustache", "Use {{=<% %>=}}{{date}}<%={{ }}=%> here.\n"),
        ("system.prompt", "---\nmodel: x\n---\nUse \\{{date}} here.\n"),
        ("system.txt", 'Answer as {"date": "..."}; a year is \\d{4}.\n'),
    ],
)
def test_b059_documented_syntax_in_templates(project: Project, name: str, head: str) -> None:
    """And what is live in the same syntax is found."""
    assert codes({f"prompts/{name}": head + RULES}, project, severity="info") == []
    assert lint("prompts").prompts == 1
    live = head + "It is {{ current_time }}.\n" + RULES
    if '{"date"' not in head:
        assert codes({f"prompts/{name}": live}, project) == ["KV101"]


def test_b059_tags_in_other_delimiters_are_live(project: Project) -> None:
    text = "{{=<% %>=}}Use {{date}}. It is <% current_time %>.\n" + RULES
    project({"prompts/system.mustache": text})
    (found,) = lint("prompts").findings
    assert (found.code, found.line, found.column) == ("KV101", 1, text.index("<% current") + 1)


@pytest.mark.parametrize(
    ("value", "severity"),
    [
        ("datetime.now().isoformat()", "error"),
        ("time.time()", "error"),
        ("datetime.now().strftime('%Y-%m-%d %H:%M')", "error"),
        ("datetime.now().replace(second=0, microsecond=0)", "error"),
        ("datetime.now().strftime('%Y-%m-%d %H')", "warning"),
        ("datetime.now().isoformat(timespec='hours')", "warning"),
        ("datetime.now().replace(minute=0, second=0, microsecond=0)", "warning"),
        ("datetime.now().strftime('%Y-%m-%d')", "info"),
        ("datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)", "info"),
        ("date.today()", "info"),
        ("datetime.now().date()", "info"),
    ],
)
def test_b061_severity_goes_by_the_grain_of_the_time(
    project: Project, value: str, severity: str
) -> None:
    clocks = {"KV101", "KV102"}
    project({"app.py": HEAD + asked(f'f"It is {{{value}}}.\\n{{RULES}}"')})
    found = [f for f in lint("app.py", severity="info").findings if f.code in clocks]
    assert [f.severity for f in found] == [severity]
    project({"app.py": HEAD + asked(f'f"{{RULES}}\\nIt is {{{value}}}."')})
    assert not [f for f in lint("app.py", severity="warning").findings if f.code in clocks]


def test_b062_an_argument_that_is_only_logged(project: Project) -> None:
    body = """
def build_prompt(question, now):
    log.info("prompt built at %s", now)
    return [{"role": "system", "content": RULES}, {"role": "user", "content": question}]


def ask(question):
    messages = build_prompt(question, now=datetime.now())
    return client.chat.completions.create(model="gpt-5", messages=messages)
"""
    assert codes({"app.py": HEAD + body}, project, severity="info") == []
    assert lint("app.py").prompts == 1


def test_b062_an_argument_of_a_tool_result(project: Project) -> None:
    body = """
def build_prompt(history, call_id, now):
    told = {"role": "tool", "tool_call_id": call_id, "content": f"It is {now}"}
    return [{"role": "system", "content": RULES}, *history, told]


def ask(history, call_id):
    messages = build_prompt(history, call_id, now=datetime.now())
    return client.chat.completions.create(model="gpt-5", messages=messages)
"""
    project({"app.py": HEAD + body})
    found = lint("app.py", severity="info").findings
    assert [(f.code, f.severity) for f in found] == [("KV101", "info")]


def test_b064_every_role_has_a_prefix_of_its_own(project: Project) -> None:
    names = ("planner", "worker", "judge")
    texts = "".join(f'{n.upper()} = "You are the {n}.\\n" + RULES\n' for n in names)
    clean = HEAD + texts + "".join(asked(n.upper(), role=n) for n in names)
    assert codes({"app.py": clean}, project, severity="info") == []
    run_id = clean.replace('"content": WORKER}', '"content": f"Run {uuid.uuid4()}\\n{WORKER}"}')
    project({"app.py": run_id})
    (found,) = lint("app.py").findings
    assert found.code == "KV103" and found.slot.startswith("worker")
    assert run_id.split("\n")[found.line - 1][found.column - 1 :].startswith("{uuid.uuid4()}")


@pytest.mark.parametrize(("sentences", "found"), [(1, []), (8, ["KV102"]), (80, ["KV102"])])
def test_b065_severity_needs_something_behind_the_break(
    project: Project, sentences: int, found: list[str]
) -> None:
    text = "You are a shop's agent. Today is {{ current_date }}.\n"
    text += "Answer only from the documents, and name them. " * sentences
    assert codes({"prompts/a.j2": text}, project) == found
    assert lint("prompts", min_tokens=5000).findings == []


def test_b067_nothing_looked_at_is_not_clean(project: Project, texts: Any) -> None:
    project(
        {"empty/readme.rst": "x", "good/a.j2": texts.clean, "bad/a.py": "import openai\nprompt = ("}
    )
    assert run(Options(paths=("good",))) == 0
    assert run(Options(paths=("empty",))) == 2
    assert run(Options(paths=("bad",))) == 2
    assert run(Options(paths=("good",), exclude=("**/*.j2",))) == 2
    # A hook names files that the settings leave out: nothing to look at is what was asked for.
    assert run(Options(paths=("good/a.j2",), exclude=("**/*.j2",), force_exclude=True)) == 0


def test_b052_memory_in_front_of_the_rules_of_an_agent(project: Project) -> None:
    body = """
from langchain.agents import create_agent


def make(memory):
    return create_agent(
        model="openai:gpt-5", tools=[], system_prompt=f"Memory:\\n{memory}\\n\\n{RULES}"
    )
"""
    assert codes({"app.py": HEAD + body}, project) == ["KV203"]
    last = body.replace('f"Memory:\\n{memory}\\n\\n{RULES}"', 'f"{RULES}\\n\\nMemory:\\n{memory}"')
    assert codes({"app.py": HEAD + last}, project) == []


def test_b056_a_marker_on_what_changes(project: Project) -> None:
    body = """
def ask(messages):
    return Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=[
            {"type": "text", "text": RULES},
            {"type": "text", "text": f"It is {datetime.now()}", "cache_control": MARK},
        ],
        messages=messages,
    )
"""
    body = body.replace("MARK", '{"type": "ephemeral"}')
    assert "KV701" in codes({"app.py": HEAD + body}, project)
    right = body.replace(', "cache_control": {"type": "ephemeral"}}', "}").replace(
        '"text": RULES}', '"text": RULES, "cache_control": {"type": "ephemeral"}}'
    )
    assert "KV701" not in codes({"app.py": HEAD + right}, project)


def test_b068_a_hash_line_in_front_of_the_rules(project: Project) -> None:
    body = """
def ask(messages):
    return Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=[
            {"type": "text", "text": f"x-billing: v=1; cch={secrets.token_hex(3)};"},
            {"type": "text", "text": RULES},
        ],
        messages=messages,
    )
"""
    project({"app.py": HEAD + body})
    found = [f for f in lint("app.py").findings if f.code == "KV103"]
    assert [f.severity for f in found] == ["error"]
    assert found[0].tokens_lost > found[0].static_behind > 200


def test_b074_a_chat_template_that_writes_the_date(project: Project) -> None:
    default = (
        "{{ bos_token }}{% if date_string is not defined %}{% if strftime_now is defined %}"
        "{% set date_string = strftime_now('%d %b %Y') %}{% else %}"
        "{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}<|start|>system\\n"
        "Today Date: {{ date_string }}\\n{% for m in messages %}<|start|>{{ m.role }}\\n"
        "{{ m.content }}<|end|>{% endfor %}"
    )
    found = codes({"tokenizer_config.json": json.dumps({"chat_template": default})}, project)
    assert found == ["KV601"]
    fixed = default.replace("{% if strftime_now is defined %}", "{% if false %}")
    fixed = fixed.replace("strftime_now('%d %b %Y')", "'26 Jul 2024'")
    assert codes({"tokenizer_config.json": json.dumps({"chat_template": fixed})}, project) == []
