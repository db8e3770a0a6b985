"""The planted causes in other shapes: place, style, number of sessions, with and without ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkv.trace.analyse import analyse
from agentkv.trace.readers import read
from agentkv.trace.report import TraceReport
from tests.trace.causes.logs import (
    DOMAINS,
    EXPECTED,
    FORMATS,
    HEALTHY,
    PLANTED,
    Shape,
    log,
)

PLACED = ("clock", "uuid", "name", "locale", "document_order", "question_first", "fewshot")
HISTORY = ("sliding_window", "edited_history", "reasoning", "image")


def shapes(kind: str) -> Iterator[tuple[Shape, str]]:
    number = 0
    for sessions, interleaved in ((1, False), (4, False), (4, True), (24, False)):
        if kind in HISTORY and sessions == 24:
            continue
        for style in range(4):
            for place in (
                ("head", "middle", "tail", "user", "block") if kind in PLACED else ("head",)
            ):
                number += 1
                if place == "tail" and (
                    sessions == 24 or (sessions == 4 and kind in ("name", "locale"))
                ):
                    continue  # nothing that could be reused stands behind it
                shape = Shape(
                    seed=number % 7,
                    sessions=sessions,
                    named=number % 2 == 0,
                    domain=list(DOMAINS)[number % 3],
                    place=place,
                    style=style,
                    interleaved=interleaved,
                )
                yield shape, list(FORMATS)[number % len(FORMATS)]


def report(folder: Path, kind: str, shape: Shape, form: str) -> TraceReport:
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in log(kind, shape, form)))
    return analyse(lambda: read([path]), fixed=False)


@pytest.mark.parametrize("kind", PLANTED)
def test_planted(kind: str, tmp_path: Path) -> None:
    reasons, rules = EXPECTED[kind]
    for shape, form in shapes(kind):
        found = report(tmp_path, kind, shape, form).causes
        told = [(c.reason, c.rule, c.tokens_lost) for c in found]
        assert len(found) == 1, (shape, form, told)
        assert found[0].reason in reasons and found[0].rule in rules, (shape, form, told)


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy(kind: str, tmp_path: Path) -> None:
    for shape, form in shapes(kind):
        found = report(tmp_path, kind, shape, form).causes
        assert found == (), (shape, form)
