"""Slices are exact: what a piece says of its place in the source is what stands there."""

from __future__ import annotations

import ast
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.lint.formats.base import Project
from agentkv.lint.formats.python.literals import Chunk, Field, chunks, scan
from agentkv.lint.formats.python.reader import PythonFormat
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Hole, Template, Text
from tests.lint.formats.python_help import RULES

# What a literal may hold, as it is written; and in which strings it may not.
TEXTS = [
    "plain words ",
    "# no comment ",
    "\\n",
    "\\t tab ",
    "\\x41",
    "\\u00e9",
    "\\U0001F600",
    "\\N{DASH}",
    "\\101",
    "\\\\",
    "naïve café 日本語 😀 ",
    "{{x}}",
    "{{",
    "}}",
    "%s $x ",
    "\\'",
    '\\"',
    "e\u0301 ",
    "\\d ",
]
FIELDS = [
    "{name}",
    "{ name }",
    "{name!r}",
    "{name:>10}",
    "{name!s:^{width}}",
    "{d['key']}",
    "{(lambda a: a)(name)}",
    "{name if name else 'none'}",
    "{ {'a': 1}['a'] }",
    "{name:%H:%M}",
    "{name != 'x'}",
    "{name == 'x'}",
    "{', '.join(name)}",
    "{f'{name}'}",
    "{name=}",
    "{x[1:2]}",
]
QUOTES = ["'", '"', "'''", '"""']
PREFIXES = ["f", "F", "rf", "fR", "Rf"]


@st.composite
def fstrings(draw: st.DrawFn) -> str:
    """The source of an f-string, perhaps of several implicitly concatenated ones."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        prefix, quote = draw(st.sampled_from(PREFIXES)), draw(st.sampled_from(QUOTES))
        body = ""
        for piece in draw(st.lists(st.sampled_from(TEXTS + FIELDS), max_size=7)):
            other = "'" if quote[0] == '"' else '"'
            if piece in FIELDS:
                piece = piece.replace("'", other)
            body += piece
        if len(quote) == 3 and draw(st.booleans()):
            body = "line\n  " + body + "\nlast "
        parts.append(f"{prefix}{quote}{body} {quote}")
    gap = draw(st.sampled_from([" ", "\n    ", "  # why\n    ", " \\\n "]))
    return gap.join(parts)


@settings(max_examples=400, deadline=None)
@given(fstrings(), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "é = 1; "]))
def test_fields_of_fstrings(literal: str, newline: str, before: str) -> None:
    text = f"{before}x = ({literal})\n".replace("\n", newline)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    start = text.index("x = (") + 5
    end = text.rindex(")")
    node = tree.body[-1].value  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant):
        return
    parts = list(chunks(scan(text, start, end)))
    fields = [p for p in parts if isinstance(p, Field)]
    expected = [v for v in node.values if isinstance(v, ast.FormattedValue)]
    assert len(fields) == len(expected)
    for field, value in zip(fields, expected, strict=True):
        written = text[field.start : field.end]
        assert written[0] == "{" and written[-1] == "}"
        inner = text[slice(*field.inner)]
        assert ast.dump(ast.parse(f"({inner.strip()})").body[0].value) == ast.dump(value.value)  # type: ignore[attr-defined]
    if not any(f.debug for f in fields):
        mine = "".join(p.value if isinstance(p, Chunk) else "\0" for p in parts)
        theirs = "".join(str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values)
        assert mine == theirs


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([t for t in TEXTS if "{" not in t and "}" not in t]), max_size=8),
    st.sampled_from(["", "r", "u", "R"]),
    st.sampled_from(QUOTES),
    st.sampled_from(["\n", "\r\n"]),
)
def test_characters_of_constants(pieces: list[str], prefix: str, quote: str, newline: str) -> None:
    body = "".join(pieces) + (" a\nb " if len(quote) == 3 else " ")
    text = f"x = {prefix}{quote}{body}{quote}\n".replace("\n", newline)
    try:
        value = ast.literal_eval(text[4:])
    except SyntaxError:
        return
    (chunk,) = [p for p in chunks(scan(text, 4, len(text) - len(newline))) if isinstance(p, Chunk)]
    assert chunk.value == value
    # Every character, cut out of the source by its offsets, is that character.
    for i, character in enumerate(value):
        written = text[chunk.offset(i) : chunk.offset(i + 1)]
        again = ast.literal_eval(f"{prefix}'''{written} '''") if written != "'" else "' "
        assert again.rstrip(" ") == character.rstrip(" ") or written == character


def prompts(source: Source) -> list[Template]:
    document: Document = PythonFormat().read(source, Project(root=__import__("pathlib").Path("/x")))
    assert document.skipped is None
    return list(document.templates)


WORDS = ["be kind ", "é ", "\\n", "\\t", "{{json}}", "\\u00e9 ", "日本 ", "'q' ", "5% ", "$3 "]
NAMES = ["topic", "user_name", "now", "frob"]


@st.composite
def formats(draw: st.DrawFn) -> tuple[str, list[str], bool]:
    """The body of a prompt and its holes in order."""
    body, names = f"{RULES} ", []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            body += draw(st.sampled_from(WORDS))
        else:
            name = draw(st.sampled_from(NAMES))
            names.append(name)
            body += "{" + name + draw(st.sampled_from(["", "!r", ":>3"])) + "}"
    return body, names, draw(st.booleans())


@settings(max_examples=200, deadline=None)
@given(
    formats(), st.sampled_from(["fstring", "format", "template"]), st.sampled_from(["\n", "\r\n"])
)
def test_pieces_of_a_prompt(made: tuple[str, list[str], bool], how: str, newline: str) -> None:
    body, names, long = made
    quote = '"""' if long else '"'
    if long:
        body = body.replace("\\n", "\n")
    if how == "fstring":
        code = f"def ask({', '.join(sorted(set(names) | {'z'}))}):\n    prompt = f{quote}{body}{quote}\n    return prompt\n"
    elif how == "format":
        given = ", ".join(f"{n}=1" for n in sorted(set(names)))
        code = f"PROMPT = {quote}{body}{quote}\n\ndef ask(q):\n    return llm.invoke(PROMPT.format({given}))\n"
    else:
        code = f"from langchain_core.prompts import PromptTemplate\np = PromptTemplate.from_template({quote}{body}{quote})\n"
    source = Source("a.py", code.replace("\n", newline))
    found = prompts(source)
    assert len(found) == 1
    (template,) = found
    holes = [h for _, _, h in template.holes()]
    assert [h.name for h in holes] == names
    assert template.writable
    last = 0
    for _, _, piece in template.pieces():
        assert piece.slice is not None and piece.slice.start >= last
        last = piece.slice.end
        written = source[piece.slice]
        if isinstance(piece, Hole):
            assert written == piece.expr and written[0] == "{" and written[-1] == "}"
        else:
            again = written.replace("{{", "{").replace("}}", "}").replace("\r\n", "\n")
            assert ast.literal_eval(f'"""{again} """') == piece.value + " "
    # Nothing of the literal is left out.
    start = template.parts[0].pieces[0].slice
    assert start is not None
    assert source.text[start.start : last].replace("\r\n", "\n") == body


@pytest.mark.parametrize(
    ("call", "syntax", "expected"),
    [
        ("%r %% {'a': a}", "percent", ["%(a)s"]),
        ("Template(%r).substitute(a=a)", "dollar", ["${a}", "$b"]),
        (
            "jinja2.Template(%r).render(a=a)",
            "jinja",
            ["{{ a }}", "{% if b %}x{{ b.c }}{% endif %}"],
        ),
    ],
)
def test_other_syntaxes(call: str, syntax: str, expected: list[str]) -> None:
    body = RULES + " é\n" + " and ".join(expected) + "\n"
    code = (
        "import jinja2\nfrom string import Template\ndef ask(a, b):\n    prompt = "
        + call % body
        + "\n    return prompt\n"
    )
    source = Source("a.py", code)
    (template,) = prompts(source)
    assert template.syntax == syntax
    holes = [h for _, _, h in template.holes()]
    assert [source[h.slice] for h in holes if h.slice] == expected
    for _, _, piece in template.pieces():
        if isinstance(piece, Text):
            assert piece.slice is not None
            assert (
                ast.literal_eval('"' + source[piece.slice].replace('"', '\\"') + '"') == piece.value
            )


def test_operands_have_their_own_places() -> None:
    code = f'RULES = "{RULES}"\n\ndef ask(llm, name):\n    prompt = "Hello " + name + ", " + RULES\n    return llm.invoke(prompt)\n'
    source = Source("a.py", code)
    template = next(t for t in prompts(source) if any(True for _ in t.holes()))
    assert [source[p.slice] for _, _, p in template.pieces() if p.slice] == [
        "Hello ",
        "name",
        ", ",
        "RULES",
    ]
    assert template.syntax == "python"


def test_two_parts_of_one_literal_never_overlap() -> None:
    code = f'P = """{RULES}\n{{a}}{{b}} x {{c}}\n"""\nprompt = P.format(a=1, b=2, c=3)\n'
    source = Source("a.py", code)
    (template,) = prompts(source)
    places = [p.slice for _, _, p in template.pieces() if p.slice]
    assert all(a.end <= b.start for a, b in pairwise(places))
