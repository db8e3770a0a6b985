"""What a run reports: findings with places instead of offsets, files, and their sum.

These structs hold no template and no source, so they are cheap to send between processes and to
keep in a cache.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from agentkv.lint.finding import SEVERITIES, Applicability, Bar, Finding, Fix, Severity
from agentkv.lint.source import Slice, Source


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One edit: replace what is between two places by `text`. Ends are exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Remedy(msgspec.Struct, frozen=True, array_like=True):
    """A `Fix` with places."""

    applicability: Applicability
    message: str
    edits: tuple[Change, ...] = ()
    proof: tuple[str, ...] = ()
    refused: str | None = None


class Also(msgspec.Struct, frozen=True, array_like=True):
    line: int
    column: int
    text: str


class Reported(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A finding as it is printed. Lines and columns count from 1; the end is exclusive."""

    code: str
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    severity: Severity
    message: str
    tokens_lost: int = 0
    static_behind: int = 0
    share: float = 0.0
    fix: Remedy | None = None
    before: tuple[tuple[str, int], ...] = ()
    after: tuple[tuple[str, int], ...] = ()
    also: tuple[Also, ...] = ()
    slot: str = ""
    prompt: str = ""
    """The prompt or request that it is in: costs of one prompt overlap."""
    scope_end: int = 0
    """The last line of that prompt."""
    excerpt: str = ""
    """The source line."""
    measured: int = 0
    """Requests of a log that `tokens_lost` was measured in, all together; 0: it is of a call."""

    @property
    def rank(self) -> int:
        """0 for an error, 2 for an info."""
        return SEVERITIES.index(self.severity)


class FileResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One file. `format` is None where nobody knows it, `skipped` says why it was not read."""

    path: str
    format: str | None = None
    digest: str = ""
    prompts: int = 0
    requests: int = 0
    skipped: str | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Reported, ...] = ()
    suppressed: int = 0
    alone: bool = False
    """Nothing beyond the file itself was looked at."""
    outside: tuple[str, ...] = ()
    """Files that are no part of the run and were read for this one."""


class Report(msgspec.Struct, kw_only=True):
    """All files of a run. `findings` are what is left after severity, baseline and `--since`."""

    files: list[FileResult]
    findings: list[Reported]
    exact: bool = False
    """Whether tokens were counted by a tokenizer."""
    tokenizer: str = "estimate"
    target: str = ""
    hidden: int = 0
    """Findings below the severity that was asked for."""
    baselined: int = 0
    gone: int = 0
    """Findings of the baseline that are no longer there."""
    fixed: dict[str, int] = {}
    """Fixes applied, by path."""
    measured: int = 0
    """Requests of the log that the costs are from: tokens of all of them together. 0: costs are of
    a call, by the stated traffic."""

    @property
    def checked(self) -> list[FileResult]:
        return [f for f in self.files if f.format is not None and f.skipped is None]

    @property
    def skipped(self) -> list[FileResult]:
        return [f for f in self.files if f.skipped is not None]

    @property
    def prompts(self) -> int:
        return sum(f.prompts for f in self.files)

    @property
    def prompt_files(self) -> int:
        return sum(bool(f.prompts) for f in self.files)

    @property
    def tokens_lost(self) -> int:
        if self.measured:
            return sum(f.tokens_lost for f in self.findings)  # shared out: none counts twice
        return total(self.findings)

    def counts(self) -> Counter[str]:
        return Counter(f.code for f in self.findings)


def order(findings: Iterable[Reported]) -> list[Reported]:
    """Dearest first, then by place."""
    return sorted(findings, key=lambda f: (-f.tokens_lost, f.path, f.line, f.column, f.code))


def total(findings: Iterable[Reported]) -> int:
    """Tokens that a call computes again because of all `findings`, none counted twice.

    Two slots of one prompt lose the same tokens behind the second one. What stands behind a slot
    is lost as often as the most changeable slot before it changes, since levels are nested (a new
    call is in particular a new minute).
    """
    prompts: dict[tuple[str, str], list[Reported]] = defaultdict(list)
    for i, f in enumerate(findings):
        prompts[f.path, f.prompt or f"#{i}"].append(f)
    return sum(_prompt_total(group) for group in prompts.values())


def _prompt_total(group: list[Reported]) -> int:
    slots = sorted(((f.static_behind, f.share) for f in group if f.static_behind), reverse=True)
    lost = most = 0.0
    for i, (behind, share) in enumerate(slots):
        most = max(most, share)
        until = slots[i + 1][0] if i + 1 < len(slots) else 0
        lost += (behind - until) * most
    # The conversation behind the prompt is lost once, whatever loses it.
    lost += max(max(0.0, f.tokens_lost - f.static_behind * f.share) for f in group)
    return max(round(lost), *(f.tokens_lost for f in group))


def worst(findings: Iterable[Reported]) -> Severity | None:
    """The gravest severity among findings."""
    ranks = [f.rank for f in findings]
    return SEVERITIES[min(ranks)] if ranks else None


def reported(finding: Finding, source: Source) -> Reported:
    """A finding of a rule, with places."""
    start, end = source.position(finding.slice.start), source.position(finding.slice.end)
    request = finding.request
    owner = finding.template or (request.template if request is not None else None) or request
    scope = owner.slice if owner is not None else finding.slice
    return Reported(
        code=finding.code,
        name=finding.name,
        path=source.path,
        line=start.line,
        column=start.column,
        end_line=end.line,
        end_column=end.column,
        severity=finding.severity,
        message=finding.message,
        tokens_lost=finding.tokens_lost,
        static_behind=finding.static_behind,
        share=finding.share,
        fix=remedy(finding.fix, source),
        before=_runs(finding.before),
        after=_runs(finding.after),
        also=tuple(_also(where, text, source) for where, text in finding.also),
        slot=finding.slot,
        prompt=f"{scope.start}:{scope.end}" if owner is not None else "",
        scope_end=source.position(max(scope.end, finding.slice.end)).line,
        excerpt=source.line_text(start.line),
        measured=finding.measured,
    )


def remedy(fix: Fix | None, source: Source) -> Remedy | None:
    if fix is None:
        return None
    edits = []
    for edit in fix.edits:
        start, end = source.position(edit.slice.start), source.position(edit.slice.end)
        edits.append(Change(start.line, start.column, end.line, end.column, edit.text))
    return Remedy(fix.applicability, fix.message, tuple(edits), fix.proof, fix.refused)


def _runs(bar: Bar | None) -> tuple[tuple[str, int], ...]:
    return tuple((level, tokens) for level, tokens in bar.runs) if bar is not None else ()


def _also(where: Slice, text: str, source: Source) -> Also:
    at = source.position(where.start)
    return Also(at.line, at.column, text)
