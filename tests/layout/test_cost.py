"""What the layer costs a call: `agentkv bench layer`, and what it does not do twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkv.bench import layer
from agentkv.prompt import canonical_tool
from agentkv.prompt import tools as tools_module


def test_the_layer_is_cheap() -> None:
    """50 tools and 100 messages: the target is 5 ms; a shared machine gets four times that."""
    report = layer.run(calls=12)
    whole = {row["part"]: row["median_ms"] for row in report.rows}
    assert set(whole) == {"Prompt.build", "arrange", "canonical JSON", "spans", "all"}
    assert whole["all"] < 4 * layer.TARGET_MS
    assert whole["Prompt.build"] + whole["arrange"] < 2 * layer.TARGET_MS


def test_tools_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    layer.run(tools=53, messages=10, calls=2)
    count = 0
    real = canonical_tool

    def counted(tool: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return real(tool)

    monkeypatch.setattr(tools_module, "canonical_tool", counted)
    layer.run(tools=53, messages=10, calls=3)
    assert count == 0
    layer.run(tools=54, messages=10, calls=3)
    assert count == 1


@pytest.mark.parametrize("level", ["canonical", "static_first", "learn"])
def test_the_command(level: str) -> None:
    from agentkv.cli.bench import app

    args = ["layer", "--tools", "3", "--messages", "8", "--calls", "3", "--level", level, "--json"]
    done = CliRunner().invoke(app, args)
    body = json.loads(done.stdout)
    assert body["bench"] == "layer"
    assert done.exit_code == (0 if body["ok"] else 1)
    assert [row["part"] for row in body["rows"]][-1] == "all"
