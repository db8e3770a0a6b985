"""Counts by rule."""

from __future__ import annotations

import json

from agentkv.lint.output.style import summary
from agentkv.lint.result import Report


def statistics_text(report: Report, *, as_json: bool = False) -> str:
    """Counts by rule: findings, tokens lost, fixes; the sum counts nothing twice."""
    rows = []
    for code, count in sorted(report.counts().items(), key=lambda row: (-row[1], row[0])):
        mine = [f for f in report.findings if f.code == code]
        can = sum(f.fix is not None and bool(f.fix.edits) for f in mine)
        lost = sum(f.tokens_lost for f in mine)
        rows.append(
            {
                "code": code,
                "name": mine[0].name,
                "count": count,
                "tokens_lost": lost,
                "fixable": can,
            }
        )
    if as_json:
        value = {
            "schema": 1,
            "rules": rows,
            "findings": len(report.findings),
            "tokens_lost": report.tokens_lost,
        }
        return json.dumps(value, indent=2) + "\n"
    wide = max((len(str(r["name"])) for r in rows), default=0)
    lines = [f"{'count':>6} {'tokens':>8} {'fixes':>6}  rule"] if rows else []
    lines += [
        f"{r['count']:>6} {r['tokens_lost']:>8,} {r['fixable']:>6}  {r['code']} {r['name']:<{wide}}".rstrip()
        for r in rows
    ]
    return "".join(line + "\n" for line in [*lines, summary(report)])
