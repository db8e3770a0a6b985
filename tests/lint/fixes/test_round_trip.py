"""Prompts made by chance in every writable format (500 each with `make test-slow`), fixed until
nothing is left to fix.

Judged by the formats' own readers, not by the linter: outside the edits every byte is the same,
filled with the same values the fixed prompt says the same lines, and a second run changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from agentkv.lint import fixes
from agentkv.lint.context import Context
from agentkv.lint.finding import Fix
from agentkv.lint.formats import Project, detect
from agentkv.lint.rule import find
from agentkv.lint.source import Source
from agentkv.lint.target import target
from tests.lint.fixes.generate import FORMATS, messages

FEW, MANY = 30, 500
CONTEXT = Context(
    count=lambda s: (len(s) + 3) // 4, exact=False, target=target("agentkv"), min_tokens=8
)


def fixed(source: Source, root: Path) -> tuple[Source, list[tuple[Source, list[Fix], Source]], int]:
    """The source fixed until it is stable, every round, and how many fixes were refused at first."""
    rounds = []
    project = Project(root=root)
    refused = 0
    for n in range(10):
        format = detect(source.path, source.text[:4096])
        assert format is not None
        document = format.read(source, project)
        found = find(document, CONTEXT)
        proposed = [f.with_fix(fixes.propose(document, f, source, CONTEXT, project)) for f in found]
        if not n:
            refused = sum(f.fix is not None and f.fix.refused is not None for f in proposed)
        made, applied = fixes.apply(source, fixes.chosen(proposed), unsafe=True)
        if not applied:
            assert made.text == source.text
            break
        rounds.append((source, applied, made))
        source = made
    return source, rounds, refused


def said(texts: list[str]) -> Counter[str]:
    """Lines and sentences, without the labels that a fix may add."""
    found = re.split(r"\s*\n\s*|(?<=[^\s.\d][.!?])\s+", "\n".join(texts).replace("\r\n", "\n"))
    return Counter(
        u.strip() for u in found if u.strip() and u.strip() not in ("<context>", "</context>")
    )


def unchanged(before: Source, applied: list[Fix], after: Source) -> None:
    """Cut the edits out of both texts: what is left is the same, byte for byte."""
    edits = sorted(
        (e for f in applied for e in f.edits), key=lambda e: (e.slice.start, e.slice.end)
    )
    old, new, shift = [], [], 0
    at, there = 0, 0
    for edit in edits:
        start = edit.slice.start + shift
        old.append(before.text[at : edit.slice.start])
        new.append(after.text[there:start])
        at, there = edit.slice.end, start + len(edit.text)
        shift += len(edit.text) - len(edit.slice)
    old.append(before.text[at:])
    new.append(after.text[there:])
    assert "".join(old).encode() == "".join(new).encode()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_round_trip(name: str, tmp_path: Path) -> None:
    check(name, FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_round_trip_of_many(name: str, tmp_path: Path) -> None:
    check(name, MANY, tmp_path)


def check(name: str, many: int, tmp_path: Path) -> None:
    format = FORMATS[name]
    moved = refused = 0
    for seed in range(many):
        random = Random(f"{name} {seed}")
        path, text = format.write(messages(random, chat=format.chat), random)
        source = Source(path, text)
        result, rounds, more = fixed(source, tmp_path)
        refused += more
        for before, applied, after in rounds:
            unchanged(before, applied, after)
            for fix in applied:
                assert len(fix.proof) >= 3, fix
        assert said(format.fill(result.text)) == said(format.fill(text)), (
            f"seed {seed}\n{text}\n---\n{result.text}"
        )
        again, more_rounds, _ = fixed(result, tmp_path)
        assert again.text == result.text and not more_rounds, (
            f"seed {seed}\n{result.text}\n---\n{again.text}"
        )
        moved += bool(rounds)
    assert moved >= many // 5, f"only {moved} of {many} were fixed"
    assert refused >= many // 20, f"only {refused} fixes were refused"
