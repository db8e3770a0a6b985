"""Samples of good and bad prompts: where they are, and what has to be found in them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

INDEX = "index.toml"


@dataclass(frozen=True, slots=True)
class Sample:
    """One small project. A bad one breaks `rule` (a name) at the lines that hold the text `at`, and
    that is reported at `severity` or worse. A good one looks alike and has to stay quiet; its
    `rule` is empty where it is no twin of a bad one."""

    kind: Literal["good", "bad"]
    rule: str
    folder: Path
    at: str = ""
    why: str = ""
    severity: Literal["error", "warning", "info"] = "warning"

    @property
    def files(self) -> list[Path]:
        return sorted(p for p in self.folder.rglob("*") if p.is_file())

    @property
    def python(self) -> bool:
        return any(p.suffix == ".py" for p in self.files)

    def lines(self) -> dict[Path, set[int]]:
        """Lines that hold `at`, by file."""
        found: dict[Path, set[int]] = {}
        for file in self.files:
            for n, line in enumerate(file.read_text("utf-8").split("\n"), 1):
                if self.at and self.at in line:
                    found.setdefault(file, set()).add(n)
        return found


def samples(folder: Path) -> list[Sample]:
    """The samples that the index in `folder` names. Raises FileNotFoundError."""
    rows = tomllib.loads((folder / INDEX).read_text("utf-8"))["sample"]
    return [Sample(**{**row, "folder": folder / row["folder"]}) for row in rows]
