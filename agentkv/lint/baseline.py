"""Known findings in a file, so that only new ones fail.

A key is code, path and slot: lines may move and text may change, the finding stays the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentkv.lint.config import ConfigError
from agentkv.lint.discover import relative
from agentkv.lint.result import Reported

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Split:
    """`new`: findings that the baseline does not have. `gone`: its findings that are no more."""

    new: list[Reported]
    gone: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """How often each key is known. Two equal slots of one file count twice."""

    known: Counter[Key]
    root: Path

    @classmethod
    def of(cls, findings: Iterable[Reported], root: Path) -> Baseline:
        return cls(Counter(key(f, root) for f in findings), root)

    @classmethod
    def read(cls, file: Path, root: Path) -> Baseline:
        """Raises `ConfigError` when the file is missing or is no baseline."""
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if data["schema"] != 1:
                raise ConfigError(f"{file}: a baseline of another version ({data['schema']}).")
            known = Counter(
                {(r["code"], r["path"], r["slot"]): int(r["count"]) for r in data["findings"]}
            )
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be read: {error.strerror or error}. `--update-baseline` writes it."
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{file}: not a baseline of agentkv lint.") from None
        return cls(known, root)

    def write(self, file: Path) -> None:
        """One line a finding, sorted, so that it merges well."""
        rows = [
            json.dumps(
                {"code": code, "path": path, "slot": slot, "count": self.known[code, path, slot]},
                ensure_ascii=False,
            )
            for code, path, slot in sorted(self.known)
        ]
        body = ",\n".join(f"    {row}" for row in rows)
        text = f'{{\n  "schema": 1,\n  "findings": [\n{body}\n  ]\n}}\n'
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")

    def split(self, findings: Iterable[Reported]) -> Split:
        left = self.known.copy()
        new = []
        for f in findings:
            at = key(f, self.root)
            if left[at] > 0:
                left[at] -= 1
            else:
                new.append(f)
        return Split(new, left.total())


def key(finding: Reported, root: Path) -> Key:
    # Without a slot, the line's own words still survive a move.
    slot = finding.slot or finding.excerpt.strip()
    return finding.code, relative(Path(finding.path), root), slot
