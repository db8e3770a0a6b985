"""A table for a pull request's comment or a job summary."""

from __future__ import annotations

from agentkv.lint.output.style import Style, fix_label, fixable, summary
from agentkv.lint.output.uri import here
from agentkv.lint.result import Report


def write(report: Report, style: Style) -> str:
    lines = ["### agentkv lint", "", summary(report).capitalize() + "."]
    if report.findings:
        lines += ["", "| Where | Rule | Tokens a call | What |", "|---|---|---:|---|"]
    for f in report.findings:
        where = f"`{_cell(here(f.path))}:{f.line}`"
        said = _cell(style.message(f) + fix_label(f))
        lines.append(f"| {where} | {f.code} {f.name} | {f.tokens_lost:,} | {said} |")
    if fixes := fixable(report):
        lines += ["", fixes.capitalize() + "."]
    if report.skipped:
        lines += ["", "Skipped:", ""]
        lines += [f"- `{_cell(here(f.path))}`: {_cell(f.skipped or '')}" for f in report.skipped]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    for c in "\\|<`*_":
        if c != "`" or "`" in text:
            text = text.replace(c, "\\" + c)
    return text.replace("\r", " ").replace("\n", " ")
