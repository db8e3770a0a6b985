"""The planted causes in other shapes: place, style, number of sessions, with and without ids.

By default so many of the shapes that every two of their properties meet; all of them are a slow test.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import combinations
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


def pairs(shape: Shape, form: str) -> set[tuple[object, ...]]:
    properties = (
        ("sessions", shape.sessions),
        ("interleaved", shape.interleaved),
        ("named", shape.named),
        ("domain", shape.domain),
        ("place", shape.place),
        ("style", shape.style),
        ("form", form),
    )
    return set(combinations(properties, 2))


def covering(kind: str) -> Iterator[tuple[Shape, str]]:
    """Few of the shapes, in which all pairs of properties occur that occur in any."""
    every = list(shapes(kind))
    left = set().union(*(pairs(*one) for one in every))
    while left:
        # Of those that bring as many new pairs, the one with fewest sessions costs least.
        best = max(every, key=lambda one: (len(left & pairs(*one)), -one[0].sessions))
        left -= pairs(*best)
        yield best


def report(folder: Path, kind: str, shape: Shape, form: str) -> TraceReport:
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in log(kind, shape, form)))
    return analyse(lambda: read([path]), fixed=False)


def planted(folder: Path, kind: str, logs: Iterable[tuple[Shape, str]]) -> None:
    reasons, rules = EXPECTED[kind]
    for shape, form in logs:
        found = report(folder, kind, shape, form).causes
        told = [(c.reason, c.rule, c.tokens_lost) for c in found]
        assert len(found) == 1, (shape, form, told)
        assert found[0].reason in reasons and found[0].rule in rules, (shape, form, told)


@pytest.mark.parametrize("kind", PLANTED)
def test_planted(kind: str, tmp_path: Path) -> None:
    planted(tmp_path, kind, covering(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACED)
def test_planted_in_every_shape(kind: str, tmp_path: Path) -> None:
    planted(tmp_path, kind, shapes(kind))


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy(kind: str, tmp_path: Path) -> None:
    for shape, form in shapes(kind):
        assert report(tmp_path, kind, shape, form).causes == (), (shape, form)
