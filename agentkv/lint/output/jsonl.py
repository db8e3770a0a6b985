"""One JSON object a line: every finding with all that is known of it, skipped files, and the sum."""

from __future__ import annotations

import json

from agentkv.lint.output.style import Style, as_json, url
from agentkv.lint.result import Report, Reported


def write(report: Report, style: Style) -> str:
    rows: list[dict[str, object]] = [_finding(f, style) for f in report.findings]
    rows += [
        {"type": "skipped", "schema": 1, "path": f.path, "reason": f.skipped}
        for f in report.skipped
    ]
    rows.append(
        {
            "type": "summary",
            "schema": 1,
            "findings": len(report.findings),
            "tokens_lost": report.tokens_lost,
            "exact": report.exact,
            "tokenizer": report.tokenizer,
            "target": report.target,
            "checked": len(report.checked),
            "prompts": report.prompts,
            "prompt_files": report.prompt_files,
            "skipped": len(report.skipped),
            "hidden": report.hidden,
            "baselined": report.baselined,
        }
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _finding(f: Reported, style: Style) -> dict[str, object]:
    row = {"type": "finding", "schema": 1, **as_json(f, style)}
    fix = row["fix"]
    if isinstance(fix, dict) and f.fix is not None and not style.redact:
        fix.update(message=f.fix.message, proof=list(f.fix.proof), refused=f.fix.refused)
    row.update(
        static_behind=f.static_behind,
        share=round(f.share, 6),
        before=[list(run) for run in f.before],
        after=[list(run) for run in f.after],
        url=url(f.code),
    )
    if not style.redact:
        row["slot"] = f.slot
        row["also"] = [{"line": a.line, "column": a.column, "text": a.text} for a in f.also]
    return row
