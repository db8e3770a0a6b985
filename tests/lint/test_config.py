"""Settings: where they are found, what they change, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.config import Config, ConfigError, load, parse
from agentkv.lint.run import lint

Project = Callable[[dict[str, str]], Path]


def test_nearest_file_counts(project: Project) -> None:
    root = project(
        {
            "pyproject.toml": "[tool.agentkv.lint]\nmin-tokens = 1\n",
            "a/agentkv.toml": "[lint]\nmin-tokens = 2\n",
            "a/b/pyproject.toml": "[project]\nname = 'x'\n",
        }
    )
    assert load(root).config.min_tokens == 1
    found = load(root / "a" / "b")
    assert (found.config.min_tokens, found.file, found.root) == (
        2,
        root / "a" / "agentkv.toml",
        root / "a",
    )
    assert load(root / "a", isolated=True).config.min_tokens == 64
    assert load(root / "a", file=root / "pyproject.toml").config.min_tokens == 1
    assert load(root, min_tokens=5, target=None).config.min_tokens == 5


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"selct": ["KV1"]}, "unknown key `selct`"),
        ({"select": "KV1"}, "`select`"),
        ({"severity": "fatal"}, "`severity`"),
        ({"stability": {"brand": "weekly"}}, "levels: build, deploy"),
        ({"traffic": {"speed": 3}}, "unknown key `traffic.speed`"),
        ({"traffic": {"changes": {"weekly": 0.5}}}, "traffic.changes.weekly"),
        ({"traffic": {"changes": {"turn": 1.5}}}, "from 0 to 1"),
        ({"select": ["KV999"]}, "KV999"),
        ({"per-file-ignores": {"*.py": ["nothing"]}}, "nothing"),
        ({"target": "abacus"}, "unknown target 'abacus'"),
        ({"formats": {"*.txt": "papyrus"}}, "unknown format 'papyrus'"),
    ],
)
def test_wrong_settings_are_told(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(table, "agentkv.toml").check()
    assert said in str(error.value)


def test_keys_outside_the_table_and_broken_files(project: Project) -> None:
    root = project({"agentkv.toml": "select = ['KV1']\n"})
    with pytest.raises(ConfigError, match=r"unknown key `select`; settings stand below \[lint\]"):
        load(root)
    project({"agentkv.toml": "[lint\n"})
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(root)
    project({"agentkv.toml": ""})
    assert load(root).config == Config()
    with pytest.raises(ConfigError, match=r"no \[tool.agentkv.lint\]"):
        load(root, file=Path(project({"pyproject.toml": ""}), "pyproject.toml"))


def test_selection_and_files(project: Project, texts: Any) -> None:
    root = project({"app.py": texts.clock, "old/sys.j2": texts.user})
    codes = {f.code for f in lint(root).findings}
    assert codes == {"KV101", "KV202"}
    assert {f.code for f in lint(root, select=["KV1"]).findings} == {"KV101"}
    assert {f.code for f in lint(root, select=["KV1"], extend_select=["KV2"]).findings} == codes
    assert {f.code for f in lint(root, ignore=["timestamp-in-prefix"]).findings} == {"KV202"}
    assert {f.code for f in lint(root, per_file_ignores={"old/**": ["KV2"]}).findings} == {"KV101"}
    assert {f.code for f in lint(root, exclude=["old"]).findings} == {"KV101"}
    assert not lint(root, min_tokens=10_000).findings
    stated = lint(root, stability={"user_name": "deploy"})
    assert {f.code for f in stated.findings} == {"KV101"}


def test_traffic_changes_the_cost(project: Project, texts: Any) -> None:
    root = project({"sys.j2": texts.user})
    (usual,) = lint(root).findings
    (often,) = lint(root, traffic={"changes": {"user": 1.0}}).findings
    assert often.tokens_lost == often.static_behind > usual.tokens_lost > 0


def test_formats_by_glob(project: Project, texts: Any) -> None:
    root = project({"sys.xyz": texts.user})
    assert not lint(root).findings  # the suffix is none of a prompt's
    report = lint(root, include=["*.xyz"], formats={"*.xyz": "jinja"})
    assert [f.code for f in report.findings] == ["KV202"]
    assert report.files[0].format == "jinja"
