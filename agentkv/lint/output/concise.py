"""One line a finding."""

from __future__ import annotations

from agentkv.lint.output.style import Style, fix_label, fixable, summary
from agentkv.lint.result import Report, Reported


def line(f: Reported, style: Style) -> str:
    """`path:line:col CODE name  cost sentence [fix: unsafe]`."""
    place = style.paint(f"{f.path}:{f.line}:{f.column}", "bold")
    code = style.severity(f.severity, f.code)
    return f"{place} {code} {f.name}  {style.message(f)}{style.paint(fix_label(f), 'cyan')}"


def write(report: Report, style: Style) -> str:
    lines = [line(f, style) for f in report.findings]
    lines += [summary(report)]
    if fixes := fixable(report):
        lines.append(fixes)
    return "\n".join(lines) + "\n"
