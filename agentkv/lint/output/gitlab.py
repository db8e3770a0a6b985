"""A Code Quality report of GitLab: a list of issues."""

from __future__ import annotations

import json

from agentkv.lint.output.style import Style
from agentkv.lint.output.uri import fingerprint, here
from agentkv.lint.result import Report

_LEVELS = {"error": "major", "warning": "minor", "info": "info"}


def write(report: Report, style: Style) -> str:
    seen: dict[str, int] = {}
    issues = [
        {
            "description": f"{f.code} {f.name}: {style.message(f)}",
            "check_name": f.code,
            "fingerprint": fingerprint(f, seen),
            "severity": _LEVELS[f.severity],
            "location": {
                "path": here(f.path),
                "positions": {
                    "begin": {"line": f.line, "column": f.column},
                    "end": {"line": f.end_line, "column": f.end_column},
                },
                "lines": {"begin": f.line, "end": f.end_line},
            },
        }
        for f in report.findings
    ]
    return json.dumps(issues, indent=2, ensure_ascii=False) + "\n"
