"""The pages in docs/: their Python runs as it stands, their links and tables are true."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

pytest.importorskip("torch")

from agentkv.cli.main import COMMANDS
from agentkv.client import engines
from agentkv.engine import Engine
from agentkv.engine.config import EngineConfig
from agentkv.engine.types import Reason

ROOT = Path(__file__).resolve().parent.parent
SERVER = "http://127.0.0.1:8080"
PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def loaded(smollm2_dir: Path) -> Iterator[Engine]:
    """The default model, loaded once for all pages."""
    config = EngineConfig()
    shared = engines.acquire(config)
    yield shared
    engines.release(config, shared)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_in_the_docs_runs(page: Path, loaded: Engine, serve: Callable[..., str]) -> None:
    """All blocks of a page, one after the other, in one namespace."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    code = "\n".join(blocks)
    if SERVER in code:
        code = code.replace(SERVER, serve(loaded))
    names: dict[str, Any] = {"__name__": "docs"}
    try:
        exec(compile(code, str(page), "exec", dont_inherit=True), names)
    finally:
        for value in names.values():
            if isinstance(value, Engine):
                value.close()
        names.clear()
        gc.collect()  # half a gigabyte of weights each


def test_every_reason_is_explained() -> None:
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| ", text, re.M)) >= set(get_args(Reason))


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "README.md"]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), (page.name, link)


def test_commands_in_the_docs_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"\$ agentkv (\w+)", page.read_text(encoding="utf-8")):
            assert name in COMMANDS, (page.name, name)
