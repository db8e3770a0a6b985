"""`--since`: what counts as changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.config import ConfigError
from agentkv.lint.run import lint_paths

Project = Callable[[dict[str, str]], Path]


def since(root: Path, revision: str = "HEAD") -> list[str]:
    report = lint_paths([root], root=root, since=revision)
    return sorted(Path(f.path).name for f in report.findings)


def test_only_what_changed(project: Project, texts: Any, git: Callable[..., str]) -> None:
    root = project({"app.py": texts.clock, "sys.j2": texts.user, "two words.j2": texts.user})
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    assert since(root) == []

    project({"new.j2": texts.user})  # untracked: all of it is new
    assert since(root) == ["new.j2"]
    git("add", "-A")
    assert since(root) == ["new.j2"]
    git("commit", "-qm", "two")
    assert since(root) == []
    assert since(root, "HEAD~1") == ["new.j2"]

    # Far from the prompt.
    project({"app.py": texts.clock.replace("import OpenAI\n", "import OpenAI\n\nimport os\n")})
    assert since(root) == []
    # The slot itself.
    project({"app.py": texts.clock.replace("It is {", "The time is {")})
    assert since(root) == ["app.py"]
    # Static text behind the slot: it costs more now.
    project({"app.py": texts.clock, "two words.j2": texts.user + "Sign with your name.\n"})
    assert since(root) == ["two words.j2"]


def test_a_folder_of_the_repository(project: Project, texts: Any, git: Callable[..., str]) -> None:
    root = project({"sub/sys.j2": texts.clean, "sys.j2": texts.clean})
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    project({"sub/sys.j2": texts.user, "sys.j2": texts.user})
    assert since(root / "sub") == ["sys.j2"]


def test_what_git_refuses_is_told(project: Project, texts: Any, git: Callable[..., str]) -> None:
    root = project({"sys.j2": texts.user})
    with pytest.raises(ConfigError, match="git says"):
        since(root)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    with pytest.raises(ConfigError, match="--since"):
        since(root, "no-such-branch")
    with pytest.raises(ConfigError, match="--since"):
        since(root, "--output=/dev/null")
