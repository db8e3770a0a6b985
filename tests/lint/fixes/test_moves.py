"""Moves, byte for byte, and what is proven of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkv.lint import fixes
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.fixes import proof
from agentkv.lint.fixes.filling import Unfillable, render
from agentkv.lint.formats import Project, detect
from agentkv.lint.rule import find
from agentkv.lint.source import Edit, Slice, Source

A = "You are the desk of a shop for model trains, and you answer mails."
B = "Each answer names the product, its price and the day of delivery."

CASES = {
    "text": ("prompts/a.txt", f"Time: {{now}}\n\n{A}\n{B}\n", f"{A}\n{B}\n\nTime: {{now}}\n"),
    "CRLF": (
        "prompts/a.txt",
        f"Time: {{now}}\r\n{A}\r\n{B}\r\n",
        f"{A}\r\n{B}\r\nTime: {{now}}\r\n",
    ),
    "sentence": (
        "prompts/a.txt",
        f"It is now {{now}}. {A} {B}\n",
        f"{A} {B}\nIt is now {{now}}.\n",
    ),
    "last sentence of a line": (
        "prompts/a.txt",
        f"{A} The time is {{now}}.\n{B}\n{B.replace('Each', 'An')}",
        f"{A}\n{B}\n{B.replace('Each', 'An')}\nThe time is {{now}}.",
    ),
    "label": ("prompts/a.txt", f"Time:\n{{now}}\n\n{A}\n{B}", f"{A}\n{B}\n\nTime:\n{{now}}"),
    "tagged block": (
        "prompts/a.txt",
        f"<time>\n{{now}}\n</time>\n\n{A}\n{B}",
        f"{A}\n{B}\n\n<time>\n{{now}}\n</time>",
    ),
    "heading": (
        "prompts/a.txt",
        f"# Time\n{{now}}\n\n# Rules\n{A}\n{B}\n",
        f"# Rules\n{A}\n{B}\n\n# Time\n{{now}}\n",
    ),
    "under another heading": (
        "prompts/a.txt",
        f"Time: {{now}}\n\n# Rules\n{A}\n{B}\n",
        f"# Rules\n{A}\n{B}\n\n<context>\nTime: {{now}}\n</context>\n",
    ),
    "inside a block": (
        "prompts/a.txt",
        f"<prompt>\nTime: {{now}}\n{A}\n{B}\n</prompt>\nAnswer:",
        f"<prompt>\n{A}\n{B}\nTime: {{now}}\n</prompt>\nAnswer:",
    ),
    "Jinja section": (
        "prompts/a.j2",
        f"{{% for d in documents %}}\n- {{{{ d }}}}\n{{% endfor %}}\n\n{A}\n{B}\n\nQuestion: {{{{ question }}}}\n",
        f"{A}\n{B}\n\n{{% for d in documents %}}\n- {{{{ d }}}}\n{{% endfor %}}\n\nQuestion: {{{{ question }}}}\n",
    ),
    "to the user": (
        "a.prompty",
        f"---\nname: a\n---\nsystem:\n{A}\nTime: {{{{now}}}}\n{B}\n\nuser:\n{{{{question}}}}\n",
        f"---\nname: a\n---\nsystem:\n{A}\n{B}\n\nuser:\n{{{{question}}}}\n\n<context>\nTime: {{{{now}}}}\n</context>\n",
    ),
    "documents ahead of the question": (
        "a.prompty",
        f"---\nname: a\n---\nsystem:\n{{{{documents}}}}\n\n{A}\n{B}\n\nuser:\n{{{{question}}}}\n",
        f"---\nname: a\n---\nsystem:\n{A}\n{B}\n\nuser:\n<context>\n{{{{documents}}}}\n</context>\n\n{{{{question}}}}\n",
    ),
    "YAML block": (
        "prompts/a.yaml",
        f"# kept\nsystem_prompt: |\n    Time: {{now}}\n\n    {A}\n    {B}\nother:  'x'\n",
        f"# kept\nsystem_prompt: |\n    {A}\n    {B}\n\n    Time: {{now}}\nother:  'x'\n",
    ),
    "YAML escapes": (
        "prompts/a.yaml",
        f'system_prompt: "Time: {{now}}\\n{A} \\u00e9\\n{B}" # kept\n',
        f'system_prompt: "{A} \\u00e9\\n{B}\\nTime: {{now}}" # kept\n',
    ),
    "JSON": (
        "a.json",
        f'{{"_type": "prompt",\n "template": "Time: {{now}}\\n{A} \\u00e9\\n{B}",  "input_variables": ["now"]}}\n',
        f'{{"_type": "prompt",\n "template": "{A} \\u00e9\\n{B}\\nTime: {{now}}",  "input_variables": ["now"]}}\n',
    ),
    "strings in a row": (
        "a.py",
        f'PROMPT = (\n    "Time: {{now}}\\n"\n    "{A}\\n"\n    "{B}"\n)\n\nx = ask(PROMPT.format(now=now()))\n',
        f'PROMPT = (\n    "{A}\\n"\n    "{B}"\n    "\\nTime: {{now}}"\n)\n\nx = ask(PROMPT.format(now=now()))\n',
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_moves(name: str, fix: Callable[..., str]) -> None:
    path, before, after = CASES[name]
    made = fix(path, before)
    assert made == after
    assert fix(path, made) == made
    assert fix(path, before, unsafe=False) == before


def test_folded_scalars_are_refused(propose: Callable[..., list[Finding]]) -> None:
    found = propose("prompts/a.yaml", f"system_prompt: >\n  Time: {{now}}\n\n  {A}\n\n  {B}\n")
    assert any("folded scalar" in (f.fix.refused or "") for f in found if f.fix is not None)


def test_proof_is_computed(propose: Callable[..., list[Finding]]) -> None:
    made = next(
        f.fix
        for f in propose("prompts/a.j2", f"Time: {{{{ now }}}}\n{A}\n{B}\n")
        if f.code == "KV101"
    )
    assert made is not None and made.applicability == "unsafe"
    said = " | ".join(made.proof)
    for words in (
        "outside the edits",
        "read again",
        "1 moved",
        "made-up values",
        "second run changes nothing",
    ):
        assert words in said


def test_the_bar_after_is_read_from_the_edited_text(context: Context, tmp_path: Path) -> None:
    source = Source("prompts/a.txt", f"Time: {{now}}\n{A}\n{B}\n")
    format = detect(source.path, source.text)
    assert format is not None
    project = Project(root=tmp_path)
    document = format.read(source, project)
    finding = next(f for f in find(document, context) if f.code == "KV101")
    made = fixes.propose(document, finding, source, context, project)
    bar = fixes.after(document, finding, made, source, context, project)
    assert bar is not None and [level for level, _ in bar.runs][:2] == ["build", "call"]
    assert fixes.after(document, finding, None, source, context, project) is None


def _templates(text: str) -> proof.Reading:
    source = Source("prompts/a.txt", text)
    format = detect(source.path, source.text)
    assert format is not None
    return proof.read(source, format.read(source, Project(root=Path())), None)


def test_a_lost_line_is_not_proven() -> None:
    old = _templates(f"Time: {{now}}\n{A}\n{B}\n").document.templates[0]
    new = _templates(f"{A}\nTime: {{now}}\n").document.templates[0]
    with pytest.raises(proof.Unproven, match="is gone"):
        proof.same_units(old, new)


def test_two_moves_at_once_are_not_proven() -> None:
    old = _templates(f"One {{now}}.\nTwo.\n{A}\nThree.\nFour.\n{B}\n").document.templates[0]
    new = _templates(f"Two.\nOne {{now}}.\n{A}\nFour.\nThree.\n{B}\n").document.templates[0]
    with pytest.raises(proof.Unproven, match="another order"):
        proof.same_units(old, new)


def test_another_variable_is_not_proven() -> None:
    old = _templates(f"Time: {{now}}\n{A}\n").document
    new = _templates(f"{A}\nTime: {{date}}\n").document
    with pytest.raises(proof.Unproven, match="variables"):
        proof.same_templates(old, new, 0)


def test_a_change_outside_the_edits_is_not_proven() -> None:
    with pytest.raises(proof.Unproven, match="outside"):
        proof.same_outside(Source("a", "abcd"), Source("a", "abXd"), [Edit(Slice(0, 1), "a")])


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{% include 'x' %}",
        "{{ '%99999999d' % 1 }}",
        "{{ x",
    ],
)
def test_jinja_is_rendered_in_a_sandbox(text: str) -> None:
    with pytest.raises(Unfillable):
        render(text)


def test_jinja_with_any_names() -> None:
    text = "{% for d in docs %}{{ d.text | shout }}{{ now('utc') }}{% endfor %}{% if x is odd_one %}{{ x.y[0] }}{% endif %}"
    assert render(text) == render(text) and "«docs»" in render(text)


def test_two_slots_in_front_of_one_text_are_both_moved(fix: Callable[..., str]) -> None:
    """Each alone wins nothing, since the other one stays in front of the same text."""
    rules = (
        "You sort letters of customers into billing, delivery, quality or other.\n"
        "A letter about money that was paid twice is billing.\n"
        "A letter about a parcel is delivery.\n"
        "A letter about a broken item is quality, even when money is wanted for it.\n"
    )
    made = "Run id: {run_id}\nCurrent time: {current_time}\n" + rules
    for _ in range(4):
        made = fix("prompts/sort.txt", made)
    assert made.startswith(rules)
    assert sorted(made.removeprefix(rules).split("\n")) == [
        "",
        "Current time: {current_time}",
        "Run id: {run_id}",
    ]
    assert fix("prompts/sort.txt", made) == made
