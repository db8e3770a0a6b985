"""The cache: a hit gives what a cold run gives, and nothing that matters is missed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint import run
from agentkv.lint.run import lint

Project = Callable[[dict[str, str]], Path]


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were analysed, not taken from the cache."""
    seen: list[str] = []
    real = run._analyse_some

    def spy(files: list[tuple[str, str]]) -> Any:
        seen.extend(Path(path).name for _, path in files)
        return real(files)

    monkeypatch.setattr(run, "_analyse_some", spy)
    return seen


def settle(root: Path) -> None:
    """Make files old enough that their times can be trusted."""
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (1_600_000_000, 1_600_000_000))


def test_second_run_analyses_nothing_and_says_the_same(
    project: Project, texts: Any, analysed: list[str]
) -> None:
    root = project({"app.py": texts.clock, "sys.j2": texts.user, "plain.py": "x = 1\n"})
    cold = lint(root, cache=False)
    analysed.clear()
    first = lint(root)
    assert sorted(analysed) == ["app.py", "plain.py", "sys.j2"]
    analysed.clear()
    second = lint(root)
    assert analysed == []
    assert cold.findings == first.findings == second.findings and len(cold.findings) == 2
    assert cold.files == second.files


def test_same_size_same_second_other_content(
    project: Project, texts: Any, analysed: list[str]
) -> None:
    root = project({"sys.j2": texts.user})
    assert len(lint(root).findings) == 1
    stat = (root / "sys.j2").stat()
    other = texts.user.replace("{{ user_name }}", "{# nobody at#}"[:15].ljust(15))
    assert len(other) == len(texts.user)
    project({"sys.j2": other})
    os.utime(root / "sys.j2", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert not lint(root).findings  # too young to be trusted: hashed again


def test_touched_files_are_not_analysed_again(
    project: Project, texts: Any, analysed: list[str]
) -> None:
    root = project({"sys.j2": texts.user})
    lint(root)
    settle(root)
    analysed.clear()
    assert len(lint(root).findings) == 1
    assert analysed == []


def test_other_modules_count(project: Project, texts: Any, analysed: list[str]) -> None:
    """The prompt is in one file, what changes in it comes out of another."""
    helper = "def now_text():\n    return {}\n"
    root = project(
        {
            "app.py": texts.clock.replace("datetime.now()", "now_text()").replace(
                "from datetime import datetime", "from clock import now_text"
            ),
            "clock.py": "import datetime\n\n\n"
            + helper.format("str(datetime.datetime.now().isoformat())"),
            "plain.py": "x = 1\n",
        }
    )
    assert len(lint(root).findings) == 1
    project({"clock.py": helper.format('"noon"')})
    settle(root)
    analysed.clear()
    assert lint(root).findings == lint(root, cache=False).findings == []
    assert "app.py" in analysed[:2] and "plain.py" not in analysed[:2]


def test_a_module_beyond_the_run_counts(project: Project, texts: Any) -> None:
    root = project(
        {
            "app.py": texts.clock.replace("datetime.now()", "now_text()").replace(
                "from datetime import datetime", "from clock import now_text"
            ),
            "clock.py": "import datetime\n\n\ndef now_text():\n    return str(datetime.datetime.now())\n",
        }
    )
    assert len(lint(root / "app.py").findings) == 1
    project({"clock.py": 'def now_text():\n    return "noon"\n'})
    assert not lint(root / "app.py").findings


def test_settings_and_versions_do_not_mix(
    project: Project, texts: Any, monkeypatch: pytest.MonkeyPatch, analysed: list[str]
) -> None:
    root = project({"sys.j2": texts.user})
    assert len(lint(root).findings) == 1
    assert not lint(root, min_tokens=5000).findings
    assert len(lint(root).findings) == 1
    analysed.clear()
    monkeypatch.setattr("agentkv.lint.cache.version", lambda: "another")
    lint(root)
    assert analysed == ["sys.j2"]


def test_a_part_of_the_files_leaves_the_rest_cached(
    project: Project, texts: Any, analysed: list[str]
) -> None:
    root = project({"a.j2": texts.user, "b.j2": texts.user})
    lint(root)
    lint(root / "a.j2")
    analysed.clear()
    lint(root)
    assert analysed == ["a.j2"]


def test_broken_and_unwritable_caches_cost_only_time(
    project: Project, texts: Any, own_cache: Path
) -> None:
    root = project({"sys.j2": texts.user})
    lint(root)
    (file,) = (own_cache / "lint").glob("*.lint")
    assert file.stat().st_mode & 0o077 == 0  # it quotes prompts
    file.write_bytes(b"\xc1 nonsense")
    assert len(lint(root).findings) == 1
    nowhere = root / "sys.j2" / "cache"
    assert len(lint(root, cache_dir=str(nowhere)).findings) == 1


def test_names_follow_the_folder_one_stands_in(
    project: Project, texts: Any, monkeypatch: pytest.MonkeyPatch, analysed: list[str]
) -> None:
    root = project({"sub/sys.j2": texts.user, "pyproject.toml": ""})
    assert [f.path for f in lint("sub").findings] == ["sub/sys.j2"]
    monkeypatch.chdir(root / "sub")
    analysed.clear()
    report = lint("sys.j2")
    assert analysed == [] and [f.path for f in report.findings] == ["sys.j2"]
    assert report.files[0].path == "sys.j2"
