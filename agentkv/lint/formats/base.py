"""What a format is: something that knows its files and reads them into documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentkv.lint.source import Source
from agentkv.lint.template import Document, Level


@dataclass(slots=True)
class Project:
    """What a format may know beyond the file at hand. Nothing of it is ever imported or run.

    `files`: every file of this run. `stability`: levels that the configuration gives to names.
    `notes`: scratch space that a format keeps from file to file (the Python format's index of
    modules), by format name. A worker process has its own.
    """

    root: Path
    files: Sequence[Path] = ()
    stability: Mapping[str, Level] = field(default_factory=dict)
    sinks: Sequence[str] = ()
    """Functions of the project that send a prompt (`mypkg.llm.ask`), from the configuration."""
    notes: dict[str, Any] = field(default_factory=dict)


class Format(Protocol):
    """A way in which prompts are written."""

    name: str

    def claims(self, path: str, head: str) -> float:
        """How sure the format is, from a path and the first 4 KiB: 0 not mine, 1 certain. Cheap:
        it is asked for every file."""
        ...

    def read(self, source: Source, project: Project) -> Document:
        """The prompts in a file. A file without any gives an empty document; one that cannot be
        parsed gives `skipped` with the reason. Never raises for bad input."""
        ...
