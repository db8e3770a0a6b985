"""Apply the fixes of a run to files, or show them as a diff. Every other byte stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from agentkv.lint.analyse import Lint, analyse
from agentkv.lint.finding import Finding
from agentkv.lint.result import Reported, reported
from agentkv.lint.source import Source, SourceError

_ROUNDS = 10
"""A fix may make room for the next one; a file that never comes to rest is left after this."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """One file: as it was, as it is, what was applied, and what was refused and why."""

    before: Source
    after: Source
    applied: int = 0
    refused: tuple[Reported, ...] = ()

    def diff(self) -> str:
        """A unified diff that `git apply` and `patch` take, empty where nothing changes."""
        if self.before.text == self.after.text:
            return ""
        old, new = _lines(self.before.text), _lines(self.after.text)
        name = self.before.path if self.before.path != "-" else "stdin"
        name = name.lstrip("/")
        out: list[str] = []
        for row in unified_diff(old, new, f"a/{name}", f"b/{name}"):
            out.append(row if row.endswith("\n") else row + "\n\\ No newline at end of file\n")
        return "".join(out)

    def write(self) -> None:
        """Put the new text in the file's place at once, with its permissions; links stay links."""
        target = Path(self.before.path).resolve()
        part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        part.write_bytes(self.after.text.encode("utf-8"))
        shutil.copymode(target, part)
        part.replace(target)


@dataclass(slots=True)
class Repair:
    """Repairs file after file. `wanted` are the findings that were reported: others stay."""

    lint: Lint
    unsafe: bool = False
    format: str | None = None

    def file(self, path: Path, wanted: Iterable[Reported]) -> Repaired | None:
        """None when the file can no longer be read."""
        try:
            source = Source.read(path)
        except SourceError:
            return None
        return self.source(source, wanted)

    def source(self, source: Source, wanted: Iterable[Reported]) -> Repaired:
        from agentkv.lint.fixes import apply

        slots = {(f.code, f.slot) for f in wanted}
        now, count = source, 0
        refused: dict[tuple[str, str], Reported] = {}
        seen = {source.text}
        for _ in range(_ROUNDS):
            found = [f for f in self._findings(now) if (f.code, f.slot) in slots]
            refused = {(f.code, f.slot): reported(f, now) for f in found if self._refused(f)}
            fixes = [f.fix for f in found if f.fix is not None and self._may(f)]
            if not fixes:
                break
            then, done = apply(now, fixes, unsafe=self.unsafe)
            if not done or then.text in seen:
                break
            seen.add(then.text)
            now, count = then, count + len(done)
        return Repaired(source, now, count, tuple(refused.values()))

    def _findings(self, source: Source) -> tuple[Finding, ...]:
        return analyse(source, self.lint, format=self.format).findings

    def _may(self, finding: Finding) -> bool:
        fix = finding.fix
        if fix is None or not fix.edits or fix.refused:
            return False
        return fix.applicability == "safe" or (self.unsafe and fix.applicability == "unsafe")

    def _refused(self, finding: Finding) -> bool:
        return finding.fix is not None and bool(finding.fix.refused)


def _lines(text: str) -> list[str]:
    """Lines with their ends, split at line feeds only, as diff tools do."""
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def by_path(findings: Iterable[Reported]) -> Iterator[tuple[str, list[Reported]]]:
    """Findings of each file, files in order."""
    groups: dict[str, list[Reported]] = {}
    for f in findings:
        groups.setdefault(f.path, []).append(f)
    yield from sorted(groups.items())
