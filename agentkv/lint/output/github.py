"""Workflow commands of GitHub Actions: each finding becomes an annotation in the diff."""

from __future__ import annotations

from agentkv.lint.output.style import Style, fix_label, summary
from agentkv.lint.output.uri import here
from agentkv.lint.result import Report

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def write(report: Report, style: Style) -> str:
    lines = []
    for f in report.findings:
        settings = {
            "title": f"{f.code} {f.name}",
            "file": here(f.path),
            "line": f.line,
            "endLine": f.end_line,
        }
        if f.end_line == f.line:
            # Columns of a range over several lines are refused by the reader.
            settings |= {"col": f.column, "endColumn": max(f.end_column, f.column)}
        said = ",".join(f"{k}={_setting(str(v))}" for k, v in settings.items())
        lines.append(f"::{_LEVELS[f.severity]} {said}::{_text(style.message(f) + fix_label(f))}")
    lines.append(f"::notice title=agentkv lint::{_text(summary(report))}")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _setting(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
