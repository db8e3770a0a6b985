"""Running a command as the console script does, in this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def agentkv(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ran]]:
    from agentkv.cli.main import main

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["agentkv", *arguments])
        capsys.readouterr()
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        else:
            code = 0
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)
