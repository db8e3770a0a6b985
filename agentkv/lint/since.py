"""What changed after a git revision: files, and lines of them."""

from __future__ import annotations

import os
import re
import subprocess
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentkv.lint.config import ConfigError
from agentkv.lint.result import Reported

_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Changed:
    """Changed lines by absolute path, sorted; None: all of the file."""

    lines: Mapping[str, list[int] | None]

    @classmethod
    def since(cls, revision: str, folder: Path) -> Changed:
        """What differs in the work tree from `revision` (for `A...B`-like needs give the merge
        base). Raises `ConfigError`: no repository, no such revision."""
        top = _git(folder, "rev-parse", "--show-toplevel").strip()
        commit = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        diff = _git(
            Path(top),
            *("-c", "core.quotePath=false", "diff", "--unified=0", "--no-color", "--no-ext-diff"),
            *("--no-renames", "--src-prefix=a/", "--dst-prefix=b/", commit.strip()),
        )
        lines: dict[str, list[int] | None] = {}
        lines.update(_hunks(diff, top))
        new = _git(Path(top), "ls-files", "-z", "--others", "--exclude-standard")
        lines.update({os.path.join(top, name): None for name in new.split("\0") if name})
        return cls({os.path.realpath(path): found for path, found in lines.items()})

    def touches(self, finding: Reported) -> bool:
        """Whether a changed line is the finding's, or in what stands behind it in its prompt."""
        path = os.path.realpath(finding.path)
        if path not in self.lines:
            return False
        lines = self.lines[path]
        if lines is None:
            return True
        at = bisect_left(lines, finding.line)
        last = max(finding.end_line, finding.scope_end)
        if at < len(lines) and lines[at] <= last:
            return True
        return any(a.line in lines for a in finding.also)


def _hunks(diff: str, top: str) -> Iterator[tuple[str, list[int]]]:
    path: str | None = None
    lines: list[int] = []
    for row in diff.split("\n"):
        if row.startswith("diff --git "):
            if path is not None:
                yield path, lines
            path, lines = None, []
        elif row.startswith("+++ b/") and path is None:
            path = os.path.join(top, row[6:].rstrip("\t"))
        elif (hunk := _HUNK.match(row)) is not None:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            # Only deletions: the lines around the gap have changed neighbours.
            lines += range(first, first + count) if count else (first, first + 1)
    if path is not None:
        yield path, lines


def _git(folder: Path, *command: str) -> str:
    try:
        done = subprocess.run(("git", "-C", str(folder), *command), capture_output=True)
    except OSError:
        raise ConfigError("`--since` needs git, and there is none.") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigError(f"`--since`: git says: {said[-1] if said else 'no'}")
    return done.stdout.decode("utf-8", "surrogateescape")
