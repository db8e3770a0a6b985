"""Files that are read while another one is: a cached result holds only as long as they do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.lint.formats.base import Project


@dataclass(slots=True)
class Others:
    """`modules`: what was made of each file, by its path. The run looks there for what to watch."""

    modules: dict[Path, Any] = field(default_factory=dict)


def others(project: Project, kind: str) -> dict[Path, Any]:
    """What was read for a project in this process, for a format to fill."""
    found: Others = project.notes.setdefault(kind, Others())
    return found.modules
