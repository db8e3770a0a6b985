"""Known findings: keys survive moves, new ones are told, gone ones are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.baseline import Baseline
from agentkv.lint.config import ConfigError
from agentkv.lint.run import lint

Project = Callable[[dict[str, str]], Path]


def test_known_findings_are_not_told(project: Project, texts: Any) -> None:
    root = project({"app.py": texts.clock, "sys.j2": texts.user})
    first = lint(root)
    assert len(first.findings) == 2
    Baseline.of(first.findings, root).write(root / "known.json")
    assert json.loads((root / "known.json").read_text())["schema"] == 1

    project({"app.py": "# moved\n\n\n" + texts.clock})  # the same finding, three lines down
    report = lint(root, baseline="known.json")
    assert not report.findings and (report.baselined, report.gone) == (2, 0)

    project({"new.j2": texts.user})
    report = lint(root, baseline="known.json")
    assert [f.path for f in report.findings] == [str(root / "new.j2")]

    project({"sys.j2": texts.clean, "new.j2": texts.clean})
    report = lint(root, baseline="known.json")
    assert not report.findings and (report.baselined, report.gone) == (1, 1)


def test_twins_count(project: Project, texts: Any) -> None:
    """A second equal slot is new."""
    root = project({"sys.j2": texts.user})
    (one,) = lint(root).findings
    split = Baseline.of([one], root).split([one, one])
    assert split.new == [one] and split.gone == 0


def test_it_does_not_hold_the_prompt(project: Project, texts: Any) -> None:
    root = project({"app.py": texts.clock, "sys.j2": texts.user})
    Baseline.of(lint(root).findings, root).write(root / "known.json")
    text = (root / "known.json").read_text()
    assert "careful" not in text and str(root) not in text


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 2, "findings": []}', '{"schema": 1}'])
def test_wrong_files(project: Project, content: str) -> None:
    root = project({"known.json": content})
    with pytest.raises(ConfigError, match=r"known\.json"):
        Baseline.read(root / "known.json", root)


def test_a_missing_file_says_how_to_make_one(project: Project, texts: Any) -> None:
    root = project({"sys.j2": texts.user})
    with pytest.raises(ConfigError, match="--update-baseline"):
        lint(root, baseline="known.json")
