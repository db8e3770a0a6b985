"""The kernels' arithmetic, in Triton's interpreter.

Triton reads TRITON_INTERPRET when it is imported, and the interpreter needs repairs, so these checks
run in one process of their own, which makes ready but once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent / "interpreter"


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only")


def interpret(marks: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "TRITON_"))}
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("pytest")),
            *("-q", "-x", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marks),
            *sorted(map(str, HERE.glob("check_*.py"))),
        ],
        cwd=ROOT,
        env={**inherited, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_kernels_under_the_interpreter() -> None:
    interpret("not slow")


@pytest.mark.slow
def test_the_slow_checks_under_the_interpreter() -> None:
    interpret("slow")
