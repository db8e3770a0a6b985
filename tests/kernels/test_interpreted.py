"""The kernels' arithmetic, in Triton's interpreter.

Triton reads TRITON_INTERPRET when it is imported, and the interpreter needs repairs, so these checks
run in processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent / "interpreter"


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only")
@pytest.mark.parametrize("name", sorted(p.stem for p in HERE.glob("check_*.py")))
def test_under_the_interpreter(name: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "TRITON_"))}
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("pytest")),
            *("-q", "-x", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"),
            str(HERE / f"{name}.py"),
        ],
        cwd=ROOT,
        env={**inherited, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
