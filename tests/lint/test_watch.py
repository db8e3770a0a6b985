"""Watching: what is seen between two looks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from agentkv.lint.watch import changes

Project = Callable[[dict[str, str]], Path]


def test_changes_are_seen(project: Project) -> None:
    root = project({"a.j2": "one", "b.j2": "two"})
    steps = iter(
        [
            lambda: None,
            lambda: (root / "a.j2").write_text("one more"),
            lambda: None,
            lambda: (root / "c.j2").write_text("new"),
            lambda: (root / "b.j2").unlink(),
        ]
    )
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        next(steps)()

    seen = list(islice(changes(lambda: root.glob("*.j2"), every=0.2, sleep=sleep), 3))
    assert [[Path(p).name for p in paths] for paths in seen] == [["a.j2"], ["c.j2"], ["b.j2"]]
    assert slept == [0.2] * 5
