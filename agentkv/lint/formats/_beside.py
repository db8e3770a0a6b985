"""What a promptfoo configuration beside a prompt file says of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentkv.lint.formats import _yaml
from agentkv.lint.formats._expression import Facts
from agentkv.lint.formats._others import others
from agentkv.lint.formats._tree import TreeError
from agentkv.lint.formats.base import Project
from agentkv.lint.formats.promptfoo import variables
from agentkv.lint.source import Source, SourceError

_NAMES = ("promptfooconfig.yaml", "promptfooconfig.yml")
_UP = 3
"""Folders above the prompt's in which a configuration may lie."""


def evidence(source: Source, project: Project) -> Mapping[str, Facts]:
    """Facts of variables from the nearest configuration that names this file."""
    here = Path(source.path)
    folder = here.parent
    for _ in range(_UP):
        for name in _NAMES:
            found = _read(folder / name, project)
            if found is not None and here.name in found[0]:
                return found[1]
        if folder in (project.root, folder.parent):
            break
        folder = folder.parent
    return {}


def _read(path: Path, project: Project) -> tuple[str, dict[str, Facts]] | None:
    """A configuration's text and its variables, read once a process."""
    kept: dict[Path, tuple[str, dict[str, Facts]] | None] = others(project, "promptfoo")
    if path not in kept:
        kept[path] = None
        try:
            if path.is_file():
                text = Source.read(path).text
                root = _yaml.parse(text)
                kept[path] = (text, variables(root)) if root is not None else None
        except (SourceError, TreeError, OSError, RecursionError):
            pass
    return kept[path]
