"""The programs in examples/ run as they stand; here on a small random model."""

from __future__ import annotations

import functools
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import agentkv

if TYPE_CHECKING:
    from agentkv.engine import Engine

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()


@pytest.fixture
def small(shared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    model = functools.partial(agentkv.ChatAgentKV, engine=shared, model="tiny")
    monkeypatch.setattr(agentkv, "ChatAgentKV", model)


def test_agent_loop(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    run("agent_loop")
    out = capsys.readouterr().out
    assert out.count("appended") == 2


def test_documents(small: None, capsys: pytest.CaptureFixture[str]) -> None:
    run("documents")
    given, laid = capsys.readouterr().out.split('layout="static_first"')
    assert "document_order" in given
    assert "document_order" not in laid


def test_openai_client(
    shared: Engine, serve: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openai")
    url = serve(shared)
    runpy.run_path(str(EXAMPLES / "openai_client.py"))["main"](url + "/v1")
    out = capsys.readouterr().out
    assert out.count("prompt tokens") == 3
    assert "tokens, 0 of them cached" in out
