"""Fixes that cannot change the meaning, and are made without being asked twice."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Fix
from agentkv.lint.fixes import apply, propose
from agentkv.lint.formats import Project, detect
from agentkv.lint.source import Edit, Slice, Source

RULES = (
    "You are the desk of a shop for model trains.\\nEach answer names the product and its price."
)


def call(expression: str, *, head: str = "", args: str = "client, data, root") -> str:
    return (
        f"import glob\nimport json\nimport os\n{head}\n\n\ndef ask({args}):\n"
        "    return client.chat.completions.create(\n        model='m',\n        messages=[\n"
        f"            {{'role': 'system', 'content': f\"{{{expression}}}\\n{RULES}\"}},\n"
        "            {'role': 'user', 'content': 'Is it there?'},\n        ],\n    )\n"
    )


SORTED = {
    "join of a set": ("', '.join({'a', 'b'})", "', '.join(sorted({'a', 'b'}))", ""),
    "join of a named set": (
        "', '.join(TOPICS)",
        "', '.join(sorted(TOPICS))",
        "TOPICS = {'a', 'b'}",
    ),
    "loop over a set": (
        "', '.join(str(n) for n in IDS)",
        "', '.join(str(n) for n in sorted(IDS, key=str))",
        "IDS = frozenset([3, 'x'])",
    ),
    "listdir": ("', '.join(os.listdir(root))", "', '.join(sorted(os.listdir(root)))", ""),
    "glob": (
        "', '.join(p for p in glob.glob('*.md'))",
        "', '.join(p for p in sorted(glob.glob('*.md')))",
        "",
    ),
}


@pytest.mark.parametrize("name", sorted(SORTED))
def test_sorted(name: str, fix: Callable[..., str]) -> None:
    before, after, head = SORTED[name]
    made = fix("desk.py", call(before, head=head), unsafe=False)
    assert made == call(after, head=head)
    assert fix("desk.py", made, unsafe=False) == made
    compile(made, "desk.py", "exec")


def _finding(document_name: str, code: str, where: Slice, source: Source) -> tuple[object, Finding]:
    format = detect(source.path, source.text)
    assert format is not None
    document = format.read(source, Project(root=__import__("pathlib").Path(".")))
    template = document.templates[0]
    at = next(
        (i, j) for i, j, h in template.holes() if h.slice is not None and where.within(h.slice)
    )
    return document, Finding(
        code=code,
        name=document_name,
        slice=where,
        message="",
        severity="info",
        template=template,
        at=at,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("json.dumps(data)", "json.dumps(data, sort_keys=True)"),
        ("json.dumps(data, indent=1)", "json.dumps(data, indent=1, sort_keys=True)"),
        ("json.dumps(dict(data),)", "json.dumps(dict(data), sort_keys=True,)"),
        ("json.dumps((data))", "json.dumps((data), sort_keys=True)"),
        ("json.dumps(data, sort_keys=False)", "json.dumps(data, sort_keys=True)"),
        ("json.dumps(data)!s:>4", "json.dumps(data, sort_keys=True)!s:>4"),
    ],
)
def test_sort_keys(before: str, after: str, context: Context) -> None:
    source = Source("desk.py", call(before))
    start = source.text.index("{" + before)
    document, finding = _finding(
        "unsorted-json", "KV302", Slice(start, start + len(before) + 2), source
    )
    made = propose(document, finding, source, context)  # type: ignore[arg-type]
    assert made is not None and made.refused is None, made
    assert made.applicability == "safe" and len(made.proof) >= 2
    assert source.apply(made.edits).text == call(after)


@pytest.mark.parametrize(
    "before", ["json.dumps(answer_schema)", "json.dumps(tools)", "json.dumps(data, **more)"]
)
def test_sort_keys_refused(before: str, context: Context) -> None:
    source = Source("desk.py", call(before, args="client, data, more, tools, answer_schema"))
    start = source.text.index("{" + before)
    document, finding = _finding(
        "unsorted-json", "KV302", Slice(start, start + len(before) + 2), source
    )
    made = propose(document, finding, source, context)  # type: ignore[arg-type]
    assert made is not None and made.refused and not made.edits


def test_tools_by_name(fix: Callable[..., str]) -> None:
    text = (
        "from langchain.agents import create_agent\n\n\nasync def build(model, client):\n"
        "    return create_agent(model, tools=await client.list_tools(), system_prompt="
        f'"{RULES}")\n'
    )
    made = fix("agent.py", text, unsafe=False)
    assert "tools=sorted(await client.list_tools(), key=lambda tool: tool.name)" in made
    assert fix("agent.py", made, unsafe=False) == made


_TOOLS_OF_ALL_KINDS = """\
from langchain_openai import ChatOpenAI


def stock(name: str) -> str:
    return name


def find(name: str) -> str:
    return name


TOOLS = {stock, find}
model = ChatOpenAI(model="gpt-4o")


def call(state):
    bound = model.bind_tools(list(TOOLS))
    return bound.invoke(state["messages"])
"""


def test_tools_without_a_name_of_their_own_can_be_sorted(fix: Callable[..., str]) -> None:
    made = fix("agent.py", _TOOLS_OF_ALL_KINDS, unsafe=False)
    assert "bind_tools(sorted(list(TOOLS), key=" in made
    assert fix("agent.py", made, unsafe=False) == made
    key = made.partition("key=")[2].partition("))\n    return")[0]

    class Tool:
        name = "delete"

    def add() -> None: ...

    many = [{"type": "web_search"}, Tool(), add]
    ordered = sorted(many, key=eval(key))  # what was written has to run
    assert [many.index(one) for one in ordered] == [2, 1, 0]


def test_line_end_before_a_question(fix: Callable[..., str]) -> None:
    text = "You are the desk of a shop for trains.\nEach answer names its price.{question}"
    made = fix("prompts/desk.txt", text, unsafe=False)
    assert (
        made == "You are the desk of a shop for trains.\nEach answer names its price.\n{question}"
    )


def test_no_line_end_where_the_line_goes_on(fix: Callable[..., str]) -> None:
    text = (
        "You are the desk of a shop for trains.\nEach answer names its price.{question} and so on."
    )
    assert fix("prompts/desk.txt", text, unsafe=False) == text


def test_byte_order_mark(fix: Callable[..., str]) -> None:
    text = "\ufeffYou are the desk of a shop for trains. Each answer names its price.\n{question}\n"
    assert fix("prompts/desk.txt", text, unsafe=False) == text[1:]


def test_letters_as_one_character(fix: Callable[..., str]) -> None:
    text = "You are the desk of a cafe\u0301 for trains. Each answer names its price.\n{question}\n"
    assert fix("prompts/desk.txt", text, unsafe=False) == text.replace("e\u0301", "é")


def test_line_ends_outside_fences(fix: Callable[..., str]) -> None:
    text = "You are the desk of a shop.\r\nName the price.\n```\nGET / HTTP\r\n```\n{question}\n"
    made = fix("prompts/desk.txt", text, unsafe=False)
    assert made == text.replace("shop.\r\n", "shop.\n")


LONG = "You are the desk of a shop for model trains, and you answer mails. " * 200


def test_marker_on_a_text(fix: Callable[..., str]) -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "system": LONG,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    made = fix("request.json", json.dumps(body, indent=2), unsafe=False, to="anthropic")
    want = {
        **body,
        "system": [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}],
    }
    assert json.loads(made) == want
    assert list(json.loads(made)) == list(body)
    assert fix("request.json", made, unsafe=False, to="anthropic") == made


def test_marker_on_the_last_block(fix: Callable[..., str]) -> None:
    text = (
        "import anthropic\n\nclient = anthropic.Anthropic()\n"
        f"RULES = {LONG!r}\n\n\ndef ask(question):\n    return client.messages.create(\n"
        "        model='claude-sonnet-4-5',\n        max_tokens=9,\n"
        "        system=[{'type': 'text', 'text': RULES}],\n"
        "        messages=[{'role': 'user', 'content': question}],\n    )\n"
    )
    made = fix("desk.py", text, unsafe=False, to="anthropic")
    assert "{'type': 'text', 'text': RULES, \"cache_control\": {\"type\": \"ephemeral\"}}" in made
    assert fix("desk.py", made, unsafe=False, to="anthropic") == made


def test_marker_before_what_changes(fix: Callable[..., str]) -> None:
    text = (
        "import anthropic\nfrom datetime import datetime\n\nclient = anthropic.Anthropic()\n"
        f"RULES = {LONG!r}\n\n\ndef ask(question):\n    return client.messages.create(\n"
        "        model='claude-sonnet-4-5',\n        max_tokens=9,\n        system=[\n"
        "            {'type': 'text', 'text': RULES},\n"
        "            {'type': 'text', 'text': f'It is {datetime.now()}.', 'cache_control': {'type': 'ephemeral'}},\n"
        "        ],\n        messages=[{'role': 'user', 'content': question}],\n    )\n"
    )
    made = fix("desk.py", text, unsafe=False, to="anthropic")
    assert "'text': RULES, 'cache_control': {'type': 'ephemeral'}}" in made
    assert "{'type': 'text', 'text': f'It is {datetime.now()}.'}" in made
    compile(made, "desk.py", "exec")


@pytest.mark.parametrize("value", ["str(uuid.uuid4())", "uuid.uuid4().hex"])
def test_cache_key(value: str, fix: Callable[..., str]) -> None:
    def text(argument: str) -> str:
        return (
            "import uuid\n\n\ndef ask(client, question):\n    return client.responses.create(\n"
            f"        model='gpt-5.1',\n        {argument}instructions='{RULES}',\n        input=question,\n    )\n"
        )

    assert fix("desk.py", text(f"prompt_cache_key={value},\n        "), unsafe=False) == text("")


def test_cache_key_of_unknown_origin_stays(fix: Callable[..., str]) -> None:
    text = (
        "def ask(client, question, request_id):\n    return client.responses.create(\n"
        f"        model='gpt-5.1', prompt_cache_key=request_id, instructions='{RULES}', input=question)\n"
    )
    assert fix("desk.py", text) == text


# -- apply ----------------------------------------------------------------------------------------


def _fix(
    start: int, end: int, text: str, applicability: str = "safe", refused: str | None = None
) -> Fix:
    return Fix(
        applicability=applicability,  # type: ignore[arg-type]
        message="",
        edits=(Edit(Slice(start, end), text),),
        refused=refused,
    )


def test_apply_takes_the_first_of_two_that_touch() -> None:
    source = Source("a.txt", "0123456789")
    made, taken = apply(source, [_fix(2, 5, "x"), _fix(4, 6, "y"), _fix(8, 9, "z")], unsafe=False)
    assert made.text == "01x567z9"
    assert [f.edits[0].text for f in taken] == ["x", "z"]


def test_apply_keeps_to_what_was_asked_for() -> None:
    source = Source("a.txt", "0123456789")
    given = [_fix(0, 1, "u", "unsafe"), _fix(2, 3, "d", "display"), _fix(4, 5, "r", refused="no")]
    assert apply(source, given, unsafe=False) == (source, [])
    made, taken = apply(source, given, unsafe=True)
    assert made.text == "u123456789" and len(taken) == 1
