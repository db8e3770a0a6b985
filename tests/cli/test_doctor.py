"""`agentkv doctor`: lines, JSON, exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentkv.doctor import examine
from agentkv.doctor.finding import Finding


def test_the_command(agentkv: Callable[..., Any]) -> None:
    ran = agentkv("doctor", "--quick", "--json")
    said = json.loads(ran.out)
    assert said["schema"] == 1 and [c["check"] for c in said["checks"]] == [
        *examine.checks(quick=True)
    ]
    assert ran.code == (0 if said["ok"] else 1)
    assert set(said["checks"][0]) == {"check", "status", "text", "fix", "facts"}


def test_problems_fail_the_command(
    agentkv: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"directories": lambda: Finding("directories", "problem", "no room", "rm -r old")}
    monkeypatch.setattr(examine, "checks", lambda quick: one)
    ran = agentkv("doctor")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        "problem  directories  no room", "                      -> rm -r old",
    ]  # fmt: skip
