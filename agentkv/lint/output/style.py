"""How a report is written: with colour or without, how wide, with or without the prompt's text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from agentkv.lint.finding import Severity
from agentkv.lint.result import Report, Reported

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_SEVERITY = {"error": "red", "warning": "yellow", "info": "blue"}


@dataclass(frozen=True, slots=True)
class Style:
    colour: bool = False
    width: int = 80
    blocks: bool = True
    """Bars of block characters; else of ASCII."""
    redact: bool = False
    """No text of a prompt, neither in messages nor in excerpts nor in edits."""

    def paint(self, text: str, *colours: str) -> str:
        if not self.colour:
            return text
        return f"\033[{';'.join(_CODES[c] for c in colours)}m{text}\033[0m"

    def severity(self, severity: Severity, text: str | None = None) -> str:
        return self.paint(text or severity, _SEVERITY[severity], "bold")

    def message(self, finding: Reported) -> str:
        """The cost sentence; only its numbers when text is not to be shown."""
        if not self.redact:
            return finding.message
        if finding.measured:
            return (
                f"{finding.tokens_lost:,} tokens computed again, "
                f"measured in {plural(finding.measured, 'request')}"
            )
        return (
            f"{finding.static_behind:,} static tokens behind it; "
            f"{finding.tokens_lost:,} tokens a call are computed again"
        )

    def fix_message(self, finding: Reported) -> str:
        fix = finding.fix
        if fix is None:
            return ""
        return f"{fix.applicability} fix" if self.redact else fix.message


def fix_label(finding: Reported) -> str:
    """`[fix: unsafe]`, or nothing."""
    fix = finding.fix
    if fix is None or fix.applicability == "display" or not fix.edits:
        return ""
    return f" [fix: {fix.applicability}]"


def url(code: str) -> str:
    """Where a rule is described."""
    return f"docs/rules.md#{code.lower()}"


def plural(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def summary(report: Report) -> str:
    """What was found, and in what: `2 findings (412 tokens a call); 14 prompts in 9 files`."""
    parts = [plural(len(report.findings), "finding")]
    if report.findings:
        about = "" if report.exact else "about "
        where = f"a call, target {report.target}"
        if report.measured:
            where = f"in {plural(report.measured, 'request')}"
        parts[0] += f" ({about}{report.tokens_lost:,} tokens {where})"
    said = plural(report.prompts, "prompt")
    files = plural(report.prompt_files, "file")
    of = len(report.checked)
    said += (
        f" in {files}"
        if of == report.prompt_files
        else f" in {report.prompt_files:,} of {plural(of, 'file')}"
    )
    parts.append(said)
    skipped = Counter(_short(f.skipped) for f in report.skipped if f.skipped is not None)
    if skipped:
        why = ", ".join(
            reason if n == 1 and len(skipped) == 1 else f"{n} {reason}"
            for reason, n in skipped.most_common(5)
        )
        parts.append(f"{len(report.skipped):,} skipped: {why}")
    more = []
    if report.hidden:
        more.append(f"{report.hidden:,} below the severity asked for")
    if report.baselined:
        more.append(f"{report.baselined:,} in the baseline")
    if report.gone:
        more.append(f"{report.gone:,} of the baseline no longer there")
    suppressed = sum(f.suppressed for f in report.files)
    if suppressed:
        more.append(f"{suppressed:,} ignored by comments")
    if more:
        parts.append(", ".join(more))
    return "; ".join(parts)


def _short(reason: str) -> str:
    """A reason without what is different in each file."""
    return reason.split(":")[0].strip()


def fixable(report: Report) -> str:
    """How many findings have a fix, or nothing."""
    safe = sum(_can(f, "safe") for f in report.findings)
    unsafe = sum(_can(f, "unsafe") for f in report.findings)
    said = []
    if safe:
        said.append(f"{safe:,} fixable with --fix")
    if unsafe:
        said.append(f"{unsafe:,} with --fix --unsafe-fixes (these reorder a prompt: read the diff)")
    return ", ".join(said)


def _can(finding: Reported, applicability: str) -> bool:
    fix = finding.fix
    return fix is not None and bool(fix.edits) and fix.applicability == applicability


def as_json(finding: Reported, style: Style) -> dict[str, object]:
    """A finding in the shape that other programs rely on. Nothing is ever taken out of it."""
    fix = finding.fix
    return {
        "code": finding.code,
        "name": finding.name,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "severity": finding.severity,
        "message": style.message(finding),
        "tokens_lost": finding.tokens_lost,
        "fix": None
        if fix is None
        else {
            "applicability": fix.applicability,
            "edits": []
            if style.redact
            else [
                {
                    "line": e.line,
                    "column": e.column,
                    "end_line": e.end_line,
                    "end_column": e.end_column,
                    "text": e.text,
                }
                for e in fix.edits
            ],
        },
    }
