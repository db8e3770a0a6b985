"""The stable shape (schema 1): findings, and what was looked at."""

from __future__ import annotations

import json

from agentkv.lint.output.style import Style, as_json
from agentkv.lint.result import Report


def write(report: Report, style: Style) -> str:
    value = {
        "schema": 1,
        "findings": [as_json(f, style) for f in report.findings],
        "files": {
            "checked": len(report.checked),
            "prompts": report.prompts,
            "skipped": len(report.skipped),
        },
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
