"""The list of commands, start-up, and errors as exit codes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.cli import main as cli
from agentkv.engine import errors

Run = Callable[..., Any]
SCRIPT = Path(sys.executable).with_name("agentkv")


def test_help_lists_every_command(agentkv: Run) -> None:
    ran = agentkv("--help")
    assert ran.code == 0
    for name, about in cli.COMMANDS.items():
        assert f"  {name} " in ran.out
        assert about.split()[0] in ran.out


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_listed_command_exists(agentkv: Run, name: str) -> None:
    ran = agentkv(name, "--help")
    assert ran.code == 0, ran.err
    assert f"Usage: agentkv {name}" in ran.out


def test_every_command_file_is_listed() -> None:
    files = {f.stem for f in Path(cli.__file__).parent.glob("*.py")}
    commands = {name for name in files if not name.startswith("_")}
    assert commands - {"main", "output"} == set(cli.COMMANDS)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['agentkv', '--help']\n"
        "from agentkv.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'langchain_core', 'numpy', 'httpx', 'rich', 'pydantic'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_help_is_instant() -> None:
    def once() -> float:
        """Processor time, so that a busy machine does not fail it."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([SCRIPT, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(10)) < 0.150


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("models", "nonsense"), ("chat", "--nonsense")]
)
def test_usage_errors_exit_2(agentkv: Run, arguments: tuple[str, ...]) -> None:
    ran = agentkv(*arguments)
    assert ran.code == cli.USAGE
    assert ran.out == ""
    assert "nonsense" in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequest("x"), 2),
        (errors.ContextLengthExceeded(limit=1, prompt_tokens=1, max_tokens=1), 2),
        (errors.PoolTooSmall(needed=2, total=1, page_size=1), 2),
        (errors.ModelNotFound("x"), 3),
        (errors.UnsupportedModel("x"), 3),
        (errors.PullFailed("x"), 3),
        (errors.EngineClosed("x"), 4),
        (errors.QueueFull(waiting=1), 4),
    ],
)
def test_engine_errors_have_exit_codes(error: errors.EngineError, code: int) -> None:
    assert cli.exit_code(error) == code


def test_an_engine_error_is_one_line_and_no_traceback(agentkv: Run) -> None:
    ran = agentkv("models", "path", "no-such-model")
    assert ran.code == cli.ENVIRONMENT
    assert ran.out == ""
    assert ran.err.startswith("error: The model 'no-such-model' does not exist.")
    assert "smollm2-135m" in ran.err
    assert ran.err.count("\n") == 1


def test_a_missing_extra_names_the_command(agentkv: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agentkv.cli.version", None)  # makes the import fail
    with pytest.raises(ModuleNotFoundError):
        agentkv("version")

    def broken(*args: object, **kwargs: object) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(cli, "import_module", broken)
    ran = agentkv("version")
    assert ran.code == cli.ENVIRONMENT
    assert "pip install 'agentkv[engine]'" in ran.err


def test_an_early_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {SCRIPT} models ls --json | head -c 0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_version(agentkv: Run) -> None:
    from importlib.metadata import version

    assert agentkv("--version").out == f"agentkv {version('agentkv')}\n"
    facts = json.loads(agentkv("version", "--json").out)
    assert facts["schema"] == 1
    assert facts["agentkv"] == version("agentkv")
    assert facts["parts"]["torch"] == version("torch")
    assert f"torch {version('torch')}" in agentkv("version").out
