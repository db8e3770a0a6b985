"""The README's example runs as it stands, and does what the text says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from agentkv.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def example() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    return str(block)


def run(code: str) -> list[tuple[int, int, str]]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\d+) tokens, (\d+) cached; then: (\w+)$", done.stdout, re.M)
    assert len(found) == 3, done.stdout
    return [(int(prompt), int(cached), reason) for prompt, cached, reason in found]


def test_the_example_reuses_the_prompt_up_to_the_clock(smollm2_dir: Path) -> None:
    first, *later = run(example())
    assert first[1:] == (0, "first_call")
    assert all(cached > first[0] // 2 for _, cached, _ in later)

    naive = run(example().replace("documents=[policy]", "documents=[policy], layout='off'"))
    for (_, cached, _), (_, lost, reason) in zip(later, naive[1:], strict=True):
        assert lost < cached
        assert reason == "text_changed"


def test_the_example_is_short() -> None:
    assert len(example().splitlines()) <= 15


def test_commands_in_the_readme_exist() -> None:
    for name in re.findall(r"\$ agentkv (\w+)", README):
        assert name in COMMANDS
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in re.findall(r"`?make ([a-z-]+)", README):
        assert name in targets
