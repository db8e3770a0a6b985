"""Which files are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.discover import PathMissing, discover
from agentkv.lint.globs import matches

Project = Callable[[dict[str, str]], Path]
TREE = {
    "a.py": "",
    "b.j2": "",
    "notes.rst": "",
    "sub/c.yaml": "",
    ".hidden/d.py": "",
    "node_modules/e.py": "",
    "env/pyvenv.cfg": "",
    "env/lib/f.py": "",
    "ignored/g.py": "",
    "sub/kept.py": "",
}


def names(root: Path, *paths: str, **settings: Any) -> list[str]:
    found = discover([root / p for p in paths or ("",)], root, **settings)
    return [f.path.relative_to(root).as_posix() for f in found]


def test_plain_folder(project: Project) -> None:
    root = project(TREE)
    assert names(root) == ["a.py", "b.j2", "ignored/g.py", "sub/c.yaml", "sub/kept.py"]
    assert names(root, exclude=["sub", "*.j2"]) == ["a.py", "ignored/g.py"]
    assert "notes.rst" in names(root, include=["*.rst"])


def test_git_says_what_is_ignored(project: Project, git: Callable[..., str]) -> None:
    root = project({**TREE, ".gitignore": "ignored/\n*.log.py\n", "x.log.py": ""})
    git("init", "-q")
    expected = ["a.py", "b.j2", "sub/c.yaml", "sub/kept.py"]
    assert names(root) == expected  # untracked
    git("add", "-A")
    assert names(root) == expected  # tracked
    (root / "a.py").unlink()
    assert names(root) == expected[1:]  # tracked and gone
    assert names(root, "ignored") == ["ignored/g.py"]  # named: then it is meant
    assert names(root, "sub", "sub/c.yaml") == ["sub/c.yaml", "sub/kept.py"]


def test_named_files_are_taken_as_they_are(project: Project) -> None:
    root = project(TREE)
    assert names(root, "notes.rst", ".hidden/d.py") == [".hidden/d.py", "notes.rst"]
    with pytest.raises(PathMissing, match=r"nowhere\.py"):
        names(root, "nowhere.py")


@pytest.mark.parametrize(
    ("glob", "path", "hit"),
    [
        ("*.py", "a/b/c.py", True),
        ("tests", "a/tests/b.py", True),
        ("tests/*.py", "tests/a.py", True),
        ("tests/*.py", "tests/b/a.py", False),
        ("tests/**", "tests/b/a.py", True),
        ("**/b/*.py", "tests/b/a.py", True),
        ("/a.py", "a.py", True),
        ("/a.py", "b/a.py", False),
        ("a?.py", "ab.py", True),
        ("[!a].py", "b.py", True),
        ("[!a].py", "a.py", False),
        ("a.py", "aXpy", False),
        ("src", "srcs/a.py", False),
    ],
)
def test_globs(glob: str, path: str, hit: bool) -> None:
    assert matches(glob, path) is hit
