"""What is no prompt stays silent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentkv.lint.formats.base import Project
from agentkv.lint.formats.python.reader import PythonFormat
from agentkv.lint.formats.python.shapes import has_evidence
from agentkv.lint.source import Source
from tests.lint.formats.python_help import holes, read

# Every file names prompts somewhere, so that it is parsed at all.
HEAD = "from datetime import datetime\nimport argparse, logging, sqlite3\nPROMPT = '> '\nimport openai\n"

SILENT = {
    "logging": 'logging.info(f"{datetime.now()} request for {user} has been answered by the assistant with the model")',
    "print": 'print(f"You are {user}. It is {datetime.now()} and you must answer the question in the box")',
    "sql": 'query = f"SELECT name, question, answer FROM conversations WHERE user = {user} AND created > {datetime.now()} ORDER BY id LIMIT 10"',
    "html": 'template = f"<html><body>You are logged in as {user}. Answer the question of the user below and press the button to continue</body></html>"',
    "argparse": 'argparse.ArgumentParser(description=f"Ask an assistant. You are a user: {user}. Give the question as the only argument and wait.")',
    "error": 'raise ValueError(f"The prompt of {user} must not be empty: you should provide the question and the context for the assistant")',
    "short": 'prompt = f"Enter {user}: "',
    "shell": 'ps1_prompt = f"{user}@host ({datetime.now()}) [use ctrl-d to leave this shell at any time you like] $ "',
    "docstring": '"""You are an assistant. Answer the question of the user."""',
    "assertion": 'assert user, f"You are a helpful assistant {user} {datetime.now()}, answer the question"',
    "code": 'template = f"""\ndef kernel_{user}(x, y):\n    return x + y\n\nclass A:\n    pass\nimport os\nfor i in range(3):\n    print(i)\n"""',
    "api result": 'message = f"{user} is not allowed to do this. Please contact the administrator of the system to get the role"',
    "url": 'url = f"https://example.com/chat/{user}/completions?prompt=1&system=2&question=3&time={datetime.now()}"',
    "metadata": 'openai.files.list(extra_query={"after": f"{datetime.now()}", "user": user, "purpose": "assistants"})',
    "mail": 'message = f"Dear {user}, your order from {datetime.now()} has been sent and will reach you soon. Kind regards, the team of the shop"',
    "changelog": 'text = f"## Changes by {user}\\n- the prompt of the shell is coloured now\\n- the answer is shorter\\n- bugs were repaired on {datetime.now()}"',
}


@pytest.mark.parametrize("what", SILENT)
def test_no_prompt(what: str) -> None:
    code = (
        HEAD + "def run(user):\n" + "".join(f"    {line}\n" for line in SILENT[what].splitlines())
    )
    document, _ = read(code)
    assert document.skipped is None
    assert document.templates == ()


def test_a_time_that_never_reaches_the_prompt() -> None:
    code = (
        HEAD
        + """
def ask(q):
    started = datetime.now()
    logging.info(f"started {started}")
    reply = openai.chat.completions.create(model="m", user=str(started), metadata={"at": str(started)}, messages=[
        {"role": "system", "content": "You are a helpful assistant. Answer politely."}, {"role": "user", "content": q}])
    return reply, datetime.now() - started
"""
    )
    for template in read(code)[0].templates:
        assert all("clock" not in h.traits for h in holes(template))


def test_escaped_braces_are_text() -> None:
    code = '''
SYSTEM_PROMPT = """You are a helpful assistant. Use {{date}} in templates and answer in JSON: {{"date": "..."}}"""
def build(x):
    return SYSTEM_PROMPT.format(x=x)
'''
    (template,) = read(code)[0].templates
    assert not holes(template)


def test_json_in_a_prompt_is_text() -> None:
    code = 'SYSTEM_PROMPT = """You are a helpful assistant. Answer in JSON: {"date": "2024-01-01", "n": {"a": 1}} and never use \\\\d{4}."""\n'
    (template,) = read(code)[0].templates
    assert not holes(template)


def test_raw_blocks_of_jinja_are_text() -> None:
    code = '''
import jinja2
t = jinja2.Template("""You are a helpful assistant. {% raw %}{{ now }}{% endraw %} {# {{ time }} #} Answer {{ question }}""")
def ask(question):
    prompt = t.render(question=question)
    return prompt
'''
    (template,) = read(code)[0].templates
    assert [h.name for h in holes(template)] == ["question"]


def test_a_file_without_a_word_of_prompts_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    import agentkv.lint.formats.python.program as program

    def refuse(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(program, "Module", refuse)
    document, _ = read("import os\n\ndef main():\n    print(os.getcwd())\n")
    assert document.templates == () and document.skipped is None
    with pytest.raises(AssertionError, match="parsed"):
        read("prompt = 'You are an assistant'\n")


def test_evidence() -> None:
    assert not has_evidence("def shell():\n    return input('prompt> ')\n")
    assert has_evidence("SYSTEM_PROMPT = f'''x'''")
    assert has_evidence("llm.invoke('hi')")
    assert has_evidence("m = [{'role': 'user'}]")
    assert not has_evidence(
        "class SamPromptEncoder: pass\nprompt_encoder_config = SamPromptEncoder()\n"
    )


def test_the_standard_library_is_silent() -> None:
    """Some 60,000 lines of code that has nothing to do with models."""
    root = Path(sys.modules["os"].__file__ or "").parent
    files = [
        p
        for folder in ("asyncio", "email", "logging", "unittest", "idlelib")
        for p in sorted((root / folder).rglob("*.py"))
    ]
    files += sorted(root.glob("[a-p]*.py"))
    project = Project(root, files)
    reader = PythonFormat()
    lines, found = 0, []
    for path in files:
        try:
            source = Source.read(path)
        except ValueError:
            continue
        lines += source.lines
        document = reader.read(source, project)
        assert document.skipped is None or "Python" in document.skipped
        found += [(path.name, t.name) for t in document.templates if any(True for _ in t.holes())]
        found += [(path.name, r.api) for r in document.requests]
    assert lines > 60_000 and found == []
