"""What OpenMP is told about waiting, and for how long it stands in the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from agentkv.engine import threads

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
SCRIPT = f"""
import json, os, sys
import agentkv.engine
told = [[os.environ.get(n) for n in {NAMES}]]
assert "torch" not in sys.modules
import agentkv.engine.parts
told.append([os.environ.get(n) for n in {NAMES}])
print(json.dumps(told))
"""


def run(**given: str) -> list[list[str | None]]:
    env = {k: v for k, v in os.environ.items() if k not in NAMES} | given
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    found: list[list[str | None]] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not threads._brings_gnu(), reason="this torch has no OpenMP of GNU's with it")
def test_gnus_is_told_until_torch_is_there() -> None:
    before, after = run()
    assert before == ["ACTIVE", "1000"]
    assert after == [None, None]


@pytest.mark.parametrize("given", [{"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_what_the_user_says_stands(given: dict[str, str]) -> None:
    for seen in run(**given):
        assert seen == [given["OMP_WAIT_POLICY"], None]


def test_without_a_known_number_of_spins_nobody_is_told_to_spin() -> None:
    for seen in run(GOMP_SPINCOUNT="77"):
        assert seen == ["PASSIVE", "77"]


def test_other_openmps_are_told_to_sleep() -> None:
    passive = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
    assert threads.wanted({}, gnu=False) == passive
    assert threads.wanted({}, gnu=True) == passive | {"OMP_WAIT_POLICY": "ACTIVE"}
