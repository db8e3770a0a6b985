"""`agentkv models`: data on stdout, progress on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def a_model(path: Path, name: str = "org/tiny") -> Path:
    """A directory that has a pulled model's files."""
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"x" * 1500)
    (path / "manifest.json").write_text(
        json.dumps({"schema": 1, "name": name, "source": "here", "license": "mit"})
    )
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_ls_shows_the_default_before_it_is_pulled(agentkv: Run, home: Path) -> None:
    ran = agentkv("models", "ls")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split()[:3] == ["smollm2-135m", "not", "pulled"]
    assert not home.exists()
    (entry,) = json.loads(agentkv("models", "ls", "--json").out)["models"]
    assert (entry["name"], entry["pulled"], entry["path"]) == ("smollm2-135m", False, None)


def test_ls_path_and_rm(agentkv: Run, home: Path) -> None:
    path = a_model(home / "models" / "org--tiny")
    listed = json.loads(agentkv("models", "ls", "--json").out)
    assert listed["schema"] == 1
    assert listed["home"] == str(home)
    entry = listed["models"][1]
    assert (entry["name"], entry["license"], entry["pulled"]) == ("org/tiny", "mit", True)
    assert entry["size_bytes"] == sum(f.stat().st_size for f in path.iterdir())
    assert "org/tiny" in agentkv("models", "ls").out

    assert agentkv("models", "path", "org/tiny").out == f"{path}\n"
    assert agentkv("models", "pull", "org/tiny").out == f"{path}\n"  # here already
    assert agentkv("models", "rm", "org/tiny").code == 0
    assert not path.exists()
    ran = agentkv("models", "rm", "org/tiny")
    assert ran.code == 3
    assert "does not exist" in ran.err


def test_path_never_pulls(agentkv: Run, home: Path) -> None:
    ran = agentkv("models", "path", "smollm2-135m")
    assert ran.code == 3
    assert "agentkv models pull smollm2-135m" in ran.err
    assert not home.exists()


def test_a_directory_is_a_model(agentkv: Run, home: Path, tmp_path: Path) -> None:
    path = a_model(tmp_path / "mine")
    assert agentkv("models", "path", str(path)).out == f"{path}\n"


@pytest.mark.parametrize(
    "name", ["../../nowhere", "a/../b", "a b/c", "x", "a/b/c", ".hidden/x", "a/b;rm"]
)
def test_odd_names_are_refused(agentkv: Run, home: Path, name: str) -> None:
    for command in ("path", "pull", "rm"):
        ran = agentkv("models", command, name)
        assert ran.code == 3
        assert "does not exist" in ran.err
    assert not home.exists()
