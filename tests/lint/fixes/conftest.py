"""A file is read, checked and its fixes proposed, as the pipeline does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkv.lint import fixes
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.formats import Project, detect
from agentkv.lint.rule import find
from agentkv.lint.source import Source
from agentkv.lint.target import target

Propose = Callable[..., list[Finding]]


@pytest.fixture
def context() -> Context:
    return Context(
        count=lambda s: (len(s) + 3) // 4, exact=False, target=target("agentkv"), min_tokens=8
    )


@pytest.fixture
def propose(context: Context, tmp_path: Path) -> Propose:
    def run(path: str, text: str, *, to: str = "agentkv") -> list[Finding]:
        source = Source(path, text)
        format = detect(path, text[:4096])
        assert format is not None
        project = Project(root=tmp_path)
        document = format.read(source, project)
        assert document.skipped is None
        mine = Context(count=context.count, exact=False, target=target(to), min_tokens=8)
        return [
            f.with_fix(fixes.propose(document, f, source, mine, project))
            for f in find(document, mine)
        ]

    return run


@pytest.fixture
def fix(propose: Propose) -> Callable[..., str]:
    """The text with its fixes made, once."""

    def run(path: str, text: str, *, unsafe: bool = True, to: str = "agentkv") -> str:
        found = propose(path, text, to=to)
        made, _ = fixes.apply(Source(path, text), fixes.chosen(found), unsafe=unsafe)
        return made.text

    return run
