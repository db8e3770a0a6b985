"""Finding: the outcome of one check."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = 1

Status = Literal["ok", "warning", "problem", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor.

    `ok`: as it should be, or as it may be. `warning`: something will not be as good as it could.
    `problem`: something that is installed or asked for does not work. `skipped`: cannot be said,
    `text` says why. `fix`: the one command that helps, or None.
    """

    check: str
    status: Status
    text: str
    fix: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, in the order of the checks."""

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether no check found a problem."""
        return not any(f.status == "problem" for f in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "ok": self.ok, "checks": [asdict(f) for f in self.findings]}
