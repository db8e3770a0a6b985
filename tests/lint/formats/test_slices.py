"""For every writable format: what is read is what was written, and every piece is where it stands."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkv.lint.source import Edit, Source
from agentkv.lint.template import Hole, Text
from tests.lint.formats.file_help import read, units, walk

NAMES = ["alpha", "beta_two", "question", "user_name", "gamma"]
WORDS = st.text(
    st.sampled_from(list("abc XYZ.,:;-!?0123é漢😀ñ\"'\n\\\t&*#|>[]()")), min_size=1, max_size=30
)
PIECES = st.lists(
    st.one_of(WORDS.map(lambda t: ("text", t)), st.sampled_from(NAMES).map(lambda n: ("hole", n))),
    min_size=1,
    max_size=8,
)

Expected = list[tuple[str, str]]


def joined(pieces: Expected) -> Expected:
    out: Expected = []
    for kind, value in pieces:
        if out and kind == "text" and out[-1][0] == "text":
            out[-1] = ("text", out[-1][1] + value)
        else:
            out.append((kind, value))
    return out


def body(pieces: Expected, hole: str) -> str:
    return "".join(v if k == "text" else hole.replace("NAME", v) for k, v in pieces)


def dumped(value: object, style: str) -> str:
    return yaml.dump(value, default_style=style, allow_unicode=True, sort_keys=False, width=40)


HEAD = "You are a helpful assistant. "


def jinja(p: Expected) -> tuple[str, str]:
    return "prompts/a.j2", body(p, "{{ NAME }}")


def braces(p: Expected) -> tuple[str, str]:
    return "prompts/a.txt", body([*p, ("hole", "alpha")], "{NAME}")


def mustache(p: Expected) -> tuple[str, str]:
    return "prompts/a.txt", body([*p, ("hole", "alpha")], "{{NAME}}")


def dollar(p: Expected) -> tuple[str, str]:
    return "prompts/a.txt", body([*p, ("hole", "alpha")], "${NAME}")


def unescaped(pieces: Expected) -> Expected:
    """In Handlebars a backslash in front of `{{` is an escape."""
    return [(k, v.replace("\\", "/") if k == "text" else v) for k, v in pieces]


def prompty(p: Expected) -> tuple[str, str]:
    return "a.prompty", f"---\nname: x\n---\nsystem:\n{body(p, '{{NAME}}')}"


def dotprompt(p: Expected) -> tuple[str, str]:
    return "a.prompt", f"---\nmodel: a/b\n---\n{body(p, '{{NAME}}')}"


def kernel(p: Expected) -> tuple[str, str]:
    return "Mail/skprompt.txt", body(p, "{{$NAME}}")


def langchain_json(p: Expected) -> tuple[str, str]:
    return "a.json", json.dumps(
        {"_type": "prompt", "input_variables": [], "template": body(p, "{NAME}")}, indent=2
    )


def langchain_json_unicode(p: Expected) -> tuple[str, str]:
    return "a.json", json.dumps(
        {"_type": "prompt", "template": body(p, "{NAME}")}, ensure_ascii=False
    )


def langchain_yaml(style: str) -> Callable[[Expected], tuple[str, str]]:
    return lambda p: ("a.yaml", "_type: prompt\n" + dumped({"template": body(p, "{NAME}")}, style))


def promptfoo(style: str) -> Callable[[Expected], tuple[str, str]]:
    return lambda p: ("promptfooconfig.yaml", dumped({"prompts": [body(p, "{{ NAME }}")]}, style))


def kernel_yaml(style: str) -> Callable[[Expected], tuple[str, str]]:
    return lambda p: (
        "a.yaml",
        "template_format: handlebars\n" + dumped({"template": body(p, "{{NAME}}")}, style),
    )


KERNEL_YAML = [kernel_yaml(s) for s in "|>\"'"]
WRITERS = {
    "jinja": jinja,
    "braces": braces,
    "mustache": mustache,
    "dollar": dollar,
    "prompty": prompty,
    "dotprompt": dotprompt,
    "kernel": kernel,
    "langchain json": langchain_json,
    "langchain json unicode": langchain_json_unicode,
    **{f"langchain yaml {s}": langchain_yaml(s) for s in "|>\"'"},
    **{f"promptfoo {s}": promptfoo(s) for s in "|>\"'"},
    **{f"kernel yaml {s}": w for s, w in zip("|>\"'", KERNEL_YAML, strict=True)},
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pieces=PIECES, crlf=st.booleans(), bom=st.booleans())
def test_every_piece_is_read_where_it_stands(
    writer: Callable[[Expected], tuple[str, str]], pieces: Expected, crlf: bool, bom: bool
) -> None:
    pieces = [("text", HEAD), *pieces]
    if writer is dotprompt or writer in KERNEL_YAML:
        pieces = unescaped(pieces)
    path, text = writer(pieces)
    if writer in (braces, mustache, dollar):
        pieces = [*pieces, ("hole", "alpha")]
    if crlf:
        text = text.replace("\n", "\r\n")
    if bom and not path.endswith((".json", ".yaml")):
        text = "\ufeff" + text
    source = Source(path, text)
    document = read(path, text)
    assert document.skipped is None
    (template,) = document.templates
    expected = joined(pieces)
    keeps = path.endswith((".json", ".yaml"))  # their values have LF whatever the file has
    if crlf and not keeps:
        expected = [(k, v.replace("\n", "\r\n") if k == "text" else v) for k, v in expected]
    if bom and not keeps and not path.endswith((".prompty", ".prompt")):
        expected[0] = ("text", "\ufeff" + expected[0][1])
    assert units(template) == expected
    assert template.writable
    found = list(walk(p for part in template.parts for p in part.pieces))
    assert all(p.slice is not None for p in found)
    for piece in found:
        assert piece.slice is not None
        if isinstance(piece, Text) and not keeps:
            assert source[piece.slice] == piece.value
    # A slice is where the hole is: another name written there is read back, and nothing else changes.
    spots = [p for p in found if isinstance(p, Hole)]
    for n, hole in enumerate(spots[:3]):
        assert hole.slice is not None
        edited = source.apply([Edit(hole.slice, hole.expr.replace(hole.name, "omega"))])
        (again,) = read(path, edited.text).templates
        renamed = [
            ("hole", "omega") if k == "hole" and _nth(expected, i) == n else (k, v)
            for i, (k, v) in enumerate(expected)
        ]
        assert units(again) == renamed


def _nth(expected: Expected, at: int) -> int:
    return sum(1 for k, _ in expected[:at] if k == "hole")


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.sampled_from(list("ab \n{}%#-$\"'|[]x.")), max_size=40))
def test_no_text_makes_a_format_raise(text: str) -> None:
    for path in (
        "prompts/a.j2",
        "prompts/a.txt",
        "a.prompty",
        "a.prompt",
        "skprompt.txt",
        "promptfooconfig.yaml",
        "chat_template.jinja",
        "tokenizer_config.json",
        "prompts/a.yaml",
    ):
        read(path, HEAD + text)
        read(path, text)
