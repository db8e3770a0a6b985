"""What a rule found: where, what it costs, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agentkv.lint.source import Edit, Slice
from agentkv.lint.template import Level, Request, Template

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

Applicability = Literal["safe", "unsafe", "display"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Edits that would remove a finding. `refused` says why there are none, in words.

    `safe`: the meaning cannot change. `unsafe`: the order of a prompt changes, somebody should read
    it. `display`: advice that is shown and never applied. `proof` lists what was checked.
    """

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...] = ()
    proof: tuple[str, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The layout of a prompt as runs of one level: `(level, tokens)` in rendering order."""

    runs: tuple[tuple[Level, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One slot of one prompt (or one request) and the rule that it breaks.

    `tokens_lost` is what a call computes again because of this slot, by the stated traffic mix;
    `share` of calls that do. `static_behind`: static tokens behind the break.
    """

    code: str
    name: str
    slice: Slice
    message: str
    severity: Severity
    tokens_lost: int = 0
    static_behind: int = 0
    share: float = 0.0
    template: Template | None = None
    request: Request | None = None
    fix: Fix | None = None
    before: Bar | None = None
    after: Bar | None = None
    also: tuple[tuple[Slice, str], ...] = ()
    """Other places that belong to it, each with a word."""
    slot: str = ""
    """Identifies the slot within its file: one finding each, and a stable key for baselines."""
    at: tuple[int, int] | None = None
    """Part and piece of the template that the finding is about."""
    measured: int = 0
    """Requests of a log that `tokens_lost` was measured in, all together; 0: it is of a call."""

    def with_fix(self, fix: Fix | None) -> Finding:
        return replace(self, fix=fix)
