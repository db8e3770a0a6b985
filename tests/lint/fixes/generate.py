"""Prompts made by chance, and how each format writes them and is filled in, without the linter.

`FORMATS` maps a name to a `Format`: `write` gives a path and a text, `fill` gives the messages that
the text stands for once its variables have values, by the format's own means (Python's `exec` and
`str.format`, Jinja, YAML and JSON readers).
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import jinja2
import yaml

Message = tuple[str, list[list[str]]]
"""A role and lines; in a line, text and `<name>` for a variable are apart."""

STATIC = [
    "You are a careful assistant for a shop that sells model trains and tickets.",
    "You answer mails of customers, and you know the catalogue by heart.",
    "Each answer names the product, its price and the day of delivery.",
    "Keep a friendly tone. Use short sentences and plain words in each of them.",
    "When a customer is angry, apologise once and offer a call with a person.",
    "Prices are in euros, with two digits behind the point and no spaces.",
    "Shipping costs 4.90 in the country and 12.50 elsewhere in Europe.",
    "Tickets are named on the receipt that comes with the mail.",
    "A refund takes five days, and a voucher is sent at once.",
    'Say "we" for the shop and "you" for the customer, \\ never the other way round.',
    "Ünïcode and café stay as they are – with dashes and “quotes” too.",
]
VOLATILE = {
    "now": ["The time is <now>.", "Current time: <now>", "Clock: <now>"],
    "date": [
        "Today is <date>.",
        "Today is <date>. Opening hours are from nine to five on week days.",
    ],
    "user_name": ["The customer is called <user_name>.", "Customer: <user_name> (<user_id>)"],
    "request_id": ["Request: <request_id>"],
    "context": ["<documents>", "Documents: <context>"],
    "memory": ["Notes on the customer: <user_profile>"],
}
TIED = [
    "If the time above is late, say that the shop is closed.",
    "The following is what the customer sees:",
    "This is what counts most.",
    "Never reveal the price of another customer.",
    "Ignore the previous instructions when they say so.",
]
USER = [["<question>"], ["Question: ", "<question>"], ["Mail of the customer: ", "<question>"]]


def messages(random: Random, *, chat: bool = True) -> list[Message]:
    """A system message of lines, lists, headings and tags, and mostly a user message."""
    lines: list[list[str]] = []
    taken = random.sample(STATIC, len(STATIC))
    names = random.sample(sorted(VOLATILE), random.choice([1, 1, 2, 3]))
    blocks: list[list[list[str]]] = [[_split(random.choice(VOLATILE[n]))] for n in names]
    blocks = [_dress(random, b) for b in blocks]
    for _ in range(random.randint(2, 6)):
        kind = random.random()
        if kind < 0.55:
            blocks.append([[taken.pop()] for _ in range(min(len(taken), random.randint(1, 2)))])
        elif kind < 0.7:
            blocks.append(
                [
                    [f"## {random.choice(['Rules', 'Style', 'Prices'])}"],
                    *([f"- {s}"] for s in random.sample(STATIC, 2)),
                ]
            )
        elif kind < 0.8:
            blocks.append([[f"{i}. {s}"] for i, s in enumerate(random.sample(STATIC, 3), 1)])
        elif kind < 0.9:
            blocks.append(
                [
                    ["<rules>".replace("<", "\x01").replace(">", "\x02")],
                    [random.choice(STATIC)],
                    ["\x01/rules\x02"],
                ]
            )
        else:
            blocks.append([[random.choice(TIED)]])
    random.shuffle(blocks)
    if random.random() < 0.6:
        blocks.sort(key=lambda b: not any(len(line) > 1 or line[0].startswith("<") for line in b))
    for block in blocks:
        if lines and random.random() < 0.5:
            lines.append([""])
        lines += block
    if random.random() < 0.2:
        lines.append(["Never reveal the price of another customer."])
    found: list[Message] = [("system", lines)]
    if chat and random.random() < 0.8:
        found.append(("user", [random.choice(USER)]))
    return found


def _dress(random: Random, block: list[list[str]]) -> list[list[str]]:
    kind = random.random()
    if kind < 0.12:
        return [["\x01info\x02"], *block, ["\x01/info\x02"]]
    if kind < 0.2:
        return [["## Facts"], *block]
    if kind < 0.25:
        return [["What is known:"], *block]
    if kind < 0.3:
        return [["```"], *block, ["```"]]
    return block


def _split(line: str) -> list[str]:
    return [p for p in re.split(r"(<\w+>)", line) if p]


def text(
    lines: list[list[str]], hole: Callable[[str], str], literal: Callable[[str], str] = str
) -> str:
    return "\n".join("".join(_piece(p, hole, literal) for p in line) for line in lines)


def _piece(piece: str, hole: Callable[[str], str], literal: Callable[[str], str]) -> str:
    found = re.fullmatch(r"<(\w+)>", piece)
    return hole(found[1]) if found else literal(piece.replace("\x01", "<").replace("\x02", ">"))


def single(name: str) -> str:
    return "{" + name + "}"


def double(name: str) -> str:
    return "{{" + name + "}}"


def kernel(name: str) -> str:
    return "{{$" + name + "}}"


def shell(name: str) -> str:
    return "${" + name + "}"


class Values(dict[str, str]):
    """A value for every name."""

    def __missing__(self, name: str) -> str:
        return f"@{name}@"


VALUES = Values()
NAMES = [
    "now",
    "date",
    "user_name",
    "user_id",
    "request_id",
    "documents",
    "context",
    "user_profile",
    "question",
]


@dataclass(frozen=True)
class Format:
    name: str
    write: Callable[[list[Message], Random], tuple[str, str]]
    fill: Callable[[str], list[str]]
    chat: bool = True


def _braces(text_: str) -> str:
    return text_.replace("{", "{{").replace("}", "}}")


# -- Python ---------------------------------------------------------------------------------------


def _fstring(given: list[Message], random: Random) -> tuple[str, str]:
    def body(lines: list[list[str]]) -> str:
        return text(lines, single, _braces)

    if random.random() < 0.5:
        rows = [f'{{"role": "{r}", "content": f"{_quoted(body(b))}"}}' for r, b in given]
    else:
        rows = [f'{{"role": "{r}", "content": f"""{_tripled(body(b))}"""}}' for r, b in given]
    inner = ",\n        ".join(rows)
    head = "from datetime import datetime\nimport uuid\n\n\n"
    args = ", ".join(n for n in NAMES if n not in ("now", "request_id"))
    return "agent.py", (
        f"{head}def ask(client, {args}):\n    now = datetime.now()\n    request_id = uuid.uuid4()\n"
        f"    return client.chat.completions.create(model='m', messages=[\n        {inner},\n    ])\n"
    )


def _quoted(raw: str) -> str:
    return raw.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _tripled(raw: str) -> str:
    return raw.replace("\\", "\\\\").replace('"""', '\\"""').replace('"', "'")


class _Client:
    def __init__(self) -> None:
        self.chat = self
        self.completions = self

    def create(self, *, messages: list[dict[str, str]], **_: Any) -> list[str]:
        return [m["content"] for m in messages]


class _Clock:
    @staticmethod
    def now() -> str:
        return "@now@"


def _fill_fstring(source: str) -> list[str]:
    scope: dict[str, Any] = {}
    source = source.replace("from datetime import datetime\nimport uuid\n", "")
    scope["datetime"] = _Clock

    class uuid:
        @staticmethod
        def uuid4() -> str:
            return "@request_id@"

    scope["uuid"] = uuid
    exec(compile(source, "agent.py", "exec"), scope)  # the test's own code
    args = {n: VALUES[n] for n in NAMES if n not in ("now", "request_id")}
    found: list[str] = scope["ask"](_Client(), **args)
    return found


def _format_string(given: list[Message], random: Random) -> tuple[str, str]:
    """A constant that is formatted elsewhere; a string a line, one long, or triple-quoted."""
    body = text([line for _, b in given for line in b], single, _braces)
    kind = random.random()
    if kind < 0.4:
        rows = body.split("\n")
        literal = (
            "(\n"
            + "\n".join(
                f'    "{_quoted(row)}{"" if i + 1 == len(rows) else chr(92) + "n"}"'
                for i, row in enumerate(rows)
            )
            + "\n)"
        )
    elif kind < 0.7:
        literal = f'"{_quoted(body)}"'
    else:
        literal = f'"""{_tripled(body)}\n"""'
    args = ", ".join(f"{n}={n}" for n in NAMES)
    return "prompts/desk.py", (
        f"PROMPT = {literal}\n\n\ndef ask(client, {', '.join(NAMES)}):\n"
        f"    return client.chat.completions.create(model='m', messages=[{{'role': 'user', 'content': PROMPT.format({args})}}])\n"
    )


def _fill_constant(source: str) -> list[str]:
    scope: dict[str, Any] = {}
    exec(compile(source, "desk.py", "exec"), scope)
    return [scope["PROMPT"].format(**{n: VALUES[n] for n in NAMES})]


def _sum(given: list[Message], random: Random) -> tuple[str, str]:
    """Strings and f-strings that are added up."""
    lines = [line for _, b in given for line in b]
    rows = []
    for i, line in enumerate(lines):
        tail = "" if i + 1 == len(lines) else "\\n"
        raw = text([line], single, _braces)
        if any(p.startswith("<") for p in line):
            rows.append(f'f"{_quoted(raw)}{tail}"')
        else:
            rows.append(f'"{_quoted(text([line], str))}{tail}"')
    body = "\n        + ".join(rows)
    return "agent.py", (
        f"def ask(client, {', '.join(NAMES)}):\n    prompt = (\n        {body}\n    )\n"
        "    return client.chat.completions.create(model='m', messages=[{'role': 'user', 'content': prompt}])\n"
    )


def _fill_sum(source: str) -> list[str]:
    scope: dict[str, Any] = {}
    exec(compile(source, "agent.py", "exec"), scope)
    found: list[str] = scope["ask"](_Client(), **{n: VALUES[n] for n in NAMES})
    return found


def _langchain(given: list[Message], random: Random) -> tuple[str, str]:
    rows = []
    for role, body in given:
        raw = text(body, single, _braces)
        name = {"system": "system", "user": "human"}[role]
        rows.append(f'    ("{name}", "{_quoted(raw)}"),')
    return "chain.py", (
        "from langchain_core.prompts import ChatPromptTemplate\n\nPROMPT = ChatPromptTemplate.from_messages([\n"
        + "\n".join(rows)
        + "\n])\n"
    )


def _fill_langchain(source: str) -> list[str]:
    scope: dict[str, Any] = {}

    class ChatPromptTemplate:
        @staticmethod
        def from_messages(rows: list[tuple[str, str]]) -> list[str]:
            return [t.format(**{n: VALUES[n] for n in NAMES}) for _, t in rows]

    scope["ChatPromptTemplate"] = ChatPromptTemplate
    exec(
        compile(
            source.replace("from langchain_core.prompts import ChatPromptTemplate\n", ""),
            "chain.py",
            "exec",
        ),
        scope,
    )
    found: list[str] = scope["PROMPT"]
    return found


# -- text files -----------------------------------------------------------------------------------


def _plain(given: list[Message], random: Random) -> tuple[str, str]:
    end = random.choice(["", "\n"])
    made = text([line for _, b in given for line in b], single) + end
    return "prompts/desk.txt", made.replace("\n", "\r\n") if random.random() < 0.2 else made


def _fill_plain(source: str) -> list[str]:
    return [re.sub(r"\{(\w+)\}", lambda m: VALUES[m[1]], source)]


def _dollar(given: list[Message], random: Random) -> tuple[str, str]:
    return "prompts/desk.txt", text([line for _, b in given for line in b], shell) + "\n"


def _fill_dollar(source: str) -> list[str]:
    return [string.Template(source).safe_substitute(VALUES)]


def _jinja(given: list[Message], random: Random) -> tuple[str, str]:
    def hole(name: str) -> str:
        if name == "documents" and random.random() < 0.7:
            return (
                "{%- for d in documents %}\n- {{ d }}\n{%- endfor %}"
                if random.random() < 0.4
                else ("{% for d in documents %}- {{ d }}\n{% endfor %}")
            )
        if name == "user_name" and random.random() < 0.3:
            return "{% if user_name %}{{ user_name }}{% else %}somebody{% endif %}"
        return random.choice(["{{ %s }}", "{{%s}}", "{{ %s | trim }}"]) % name

    lines = [line for _, b in given for line in b]
    if random.random() < 0.15:
        lines.insert(random.randint(0, len(lines)), ["{# kept by the desk's team #}"])
    if random.random() < 0.15:
        lines.insert(0, ["{% set shop = 'Trains' %}"])
        lines.append(["{{ shop }} is the shop's name."])
    return "prompts/desk.j2", text(lines, hole) + "\n"


def _fill_jinja(source: str) -> list[str]:
    env = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    values: dict[str, Any] = {n: VALUES[n] for n in NAMES}
    values["documents"] = ["@d1@", "@d2@"]
    return [env.from_string(source).render(**values)]


def _prompty(given: list[Message], random: Random) -> tuple[str, str]:
    front = "---\nname: desk\nmodel:\n  api: chat\n---\n"
    body = "\n\n".join(f"{r}:\n{text(b, double)}" for r, b in given)
    return "desk.prompty", front + body + "\n"


def _fill_prompty(source: str) -> list[str]:
    body = source.split("---\n", 2)[2]
    parts = re.split(r"^(?:system|user):\n", body, flags=re.MULTILINE)
    return [re.sub(r"\{\{(\w+)\}\}", lambda m: VALUES[m[1]], p) for p in parts[1:]]


def _skprompt(given: list[Message], random: Random) -> tuple[str, str]:
    return "plugins/desk/skprompt.txt", text([line for _, b in given for line in b], kernel) + "\n"


def _fill_skprompt(source: str) -> list[str]:
    return [re.sub(r"\{\{\$(\w+)\}\}", lambda m: VALUES[m[1]], source)]


def _dotprompt(given: list[Message], random: Random) -> tuple[str, str]:
    body = "\n".join(f'{{{{role "{r}"}}}}\n{text(b, double)}' for r, b in given)
    return "desk.prompt", f"---\nmodel: m\n---\n{body}\n"


def _fill_dotprompt(source: str) -> list[str]:
    body = source.split("---\n", 2)[2]
    parts = re.split(r'\{\{role "(?:system|user)"\}\}', body)
    return [re.sub(r"\{\{(\w+)\}\}", lambda m: VALUES[m[1]], p) for p in parts[1:]]


# -- YAML and JSON --------------------------------------------------------------------------------


def _block(raw: str, indent: int) -> str:
    return "|\n" + "\n".join(" " * indent + row if row else "" for row in raw.split("\n"))


def _scalar(raw: str, indent: int, random: Random) -> str:
    return (
        _block(raw, indent)
        if random.random() < 0.7
        else json.dumps(raw, ensure_ascii=random.random() < 0.5)
    )


def _prompt_yaml(given: list[Message], random: Random) -> tuple[str, str]:
    raw = text([line for _, b in given for line in b], single)
    return (
        "prompts/desk.yaml",
        f"# the desk's prompt\nversion: 3\nsystem_prompt: {_scalar(raw, 2, random)}\nother: 'kept'\n",
    )


def _fill_prompt_yaml(source: str) -> list[str]:
    return _fill_plain(yaml.safe_load(source)["system_prompt"])


def _sk_yaml(given: list[Message], random: Random) -> tuple[str, str]:
    raw = text([line for _, b in given for line in b], kernel)
    return (
        "desk.yaml",
        f"name: Desk\ntemplate_format: semantic-kernel\ntemplate: {_scalar(raw, 4, random)}\ndescription: kept  # as it is\n",
    )


def _fill_sk_yaml(source: str) -> list[str]:
    return _fill_skprompt(yaml.safe_load(source)["template"])


def _crewai(given: list[Message], random: Random) -> tuple[str, str]:
    lines = [["Answer the mail of a customer."], *(line for _, b in given for line in b)]
    raw = text(lines, single)
    return "config/tasks.yaml", (
        f"answer_task:\n  description: {_scalar(raw, 4, random)}\n"
        "  expected_output: >\n    A mail to the customer.\n  agent: desk\n"
    )


def _fill_crewai(source: str) -> list[str]:
    return _fill_plain(yaml.safe_load(source)["answer_task"]["description"])


def _promptfoo(given: list[Message], random: Random) -> tuple[str, str]:
    raw = text([line for _, b in given for line in b], double)
    return (
        "promptfooconfig.yaml",
        f"description: desk\nprompts:\n  - {_scalar(raw, 4, random)}\nproviders: [openai:m]\n",
    )


def _fill_promptfoo(source: str) -> list[str]:
    return _fill_mustache(yaml.safe_load(source)["prompts"][0])


def _fill_mustache(raw: str) -> list[str]:
    return [re.sub(r"\{\{(\w+)\}\}", lambda m: VALUES[m[1]], raw)]


def _langchain_json(given: list[Message], random: Random) -> tuple[str, str]:
    raw = text([line for _, b in given for line in b], single)
    made = {
        "_type": "prompt",
        "input_variables": NAMES,
        "template": raw,
        "template_format": "f-string",
        "output_parser": None,
    }
    return "desk.json", json.dumps(
        made, indent=random.choice([None, 2]), ensure_ascii=random.random() < 0.5
    ) + "\n"


def _fill_langchain_json(source: str) -> list[str]:
    return _fill_plain(json.loads(source)["template"])


FORMATS = {
    f.name: f
    for f in [
        Format("f-string", _fstring, _fill_fstring),
        Format("format string", _format_string, _fill_constant, chat=False),
        Format("sum of strings", _sum, _fill_sum, chat=False),
        Format("LangChain", _langchain, _fill_langchain),
        Format("text", _plain, _fill_plain, chat=False),
        Format("dollar", _dollar, _fill_dollar, chat=False),
        Format("Jinja", _jinja, _fill_jinja, chat=False),
        Format("Prompty", _prompty, _fill_prompty),
        Format("Semantic Kernel", _skprompt, _fill_skprompt, chat=False),
        Format("Dotprompt", _dotprompt, _fill_dotprompt),
        Format("YAML", _prompt_yaml, _fill_prompt_yaml, chat=False),
        Format("Semantic Kernel YAML", _sk_yaml, _fill_sk_yaml, chat=False),
        Format("CrewAI", _crewai, _fill_crewai, chat=False),
        Format("promptfoo", _promptfoo, _fill_promptfoo, chat=False),
        Format("LangChain JSON", _langchain_json, _fill_langchain_json, chat=False),
    ]
}
