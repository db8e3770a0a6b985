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
        ({"severities": {"KV101": "fatal"}}, "`severities"),
        ({"severities": {"KV999": "info"}}, "KV999"),
        ({"severity": {"KV101": "fatal"}}, "`severities"),
        ({"severity": {"timestmp": "info"}}, "timestmp"),
        ({"severity": {"least": "fatal"}}, "`severity`"),
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


def test_b061_the_severity_of_a_rule_is_configurable(project: Project, texts: Any) -> None:
    """The most exact word counts, `severity` may be the table itself, and the rest stays as it is."""
    both = 'severities = { KV1 = "info", timestamp-in-prefix = "warning" }'
    project({"app.py": texts.clock, "sys.j2": texts.user})

    def found(settings: str, **options: Any) -> dict[str, str]:
        Path("agentkv.toml").write_text(f"[lint]\n{settings}\n")
        report = lint(".", **options)
        return {f.code: f.severity for f in report.findings}

    usual = found("")
    assert set(usual) == {"KV101", "KV202"}
    for level in ("error", "warning"):
        assert found(f'severities = {{ KV101 = "{level}" }}') == {**usual, "KV101": level}
        assert found(f'severity = {{ KV101 = "{level}" }}') == {**usual, "KV101": level}
    assert found('severity = { KV101 = "info" }') == {"KV202": usual["KV202"]}
    assert found('severity = { KV101 = "info", least = "info" }')["KV101"] == "info"
    # The command line says what is shown, and leaves the table alone.
    assert found('severity = { KV101 = "info" }', severity="info")["KV101"] == "info"
    assert found(both)["KV101"] == "warning"
    assert "KV101" not in found('severities = { KV1 = "info" }')


def test_the_exit_status_goes_by_the_severity_that_was_set(project: Project, texts: Any) -> None:
    from agentkv.lint.command import Options, WrongUsage, run

    project({"app.py": texts.clock})
    file = Path("agentkv.toml")
    for level, status in (("info", 0), ("warning", 0), ("error", 1)):
        file.write_text(f'[lint]\nfail-on = "error"\nseverity = {{ KV101 = "{level}" }}\n')
        assert run(Options(paths=(".",))) == status
    file.write_text('[lint]\nseverity = { KV1O1 = "info" }\n')
    with pytest.raises(WrongUsage, match="KV1O1"):
        run(Options(paths=(".",)))
