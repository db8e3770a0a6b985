"""SARIF 2.1.0, with fixes: for code scanning and editors."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from agentkv.lint.output.style import Style, url
from agentkv.lint.output.uri import fingerprint, uri
from agentkv.lint.result import Report, Reported
from agentkv.lint.rule import all_rules

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def write(report: Report, style: Style) -> str:
    codes = sorted({f.code for f in report.findings})
    seen: dict[str, int] = {}
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "agentkv",
                "semanticVersion": version("agentkv"),
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(f, codes.index(f.code), seen, style) for f in report.findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "level": "note",
                        "message": {"text": f"skipped: {f.skipped}"},
                        "locations": [{"physicalLocation": {"artifactLocation": _file(f.path)}}],
                    }
                    for f in report.skipped
                ],
            }
        ],
        "properties": {"target": report.target, "tokensLost": report.tokens_lost},
    }
    value = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _rule(code: str) -> dict[str, Any]:
    found: dict[str, Any] = {"id": code}
    for rule in all_rules():
        if rule.code == code:
            page = rule.page()
            found["name"] = rule.name
            found["shortDescription"] = {"text": _sentence(page) or rule.name}
            found["help"] = {"text": page or rule.name, "markdown": page or rule.name}
    return found


def _sentence(page: str) -> str:
    return " ".join(page.split("\n\n")[0].split())


def _result(f: Reported, index: int, seen: dict[str, int], style: Style) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": f.code,
        "ruleIndex": index,
        "level": _LEVELS[f.severity],
        "message": {"text": style.message(f)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _file(f.path),
                    "region": _region(f.line, f.column, f.end_line, f.end_column),
                }
            }
        ],
        "partialFingerprints": {"agentkv/v1": fingerprint(f, seen)},
        "properties": {
            "tokensLost": f.tokens_lost,
            "staticBehind": f.static_behind,
            "page": url(f.code),
        },
    }
    if f.also:
        result["relatedLocations"] = [
            {
                "id": i,
                "physicalLocation": {
                    "artifactLocation": _file(f.path),
                    "region": {"startLine": a.line, "startColumn": a.column},
                },
                **({} if style.redact else {"message": {"text": a.text}}),
            }
            for i, a in enumerate(f.also, 1)
        ]
    fix = f.fix
    if fix is not None and fix.edits and not style.redact:
        result["fixes"] = [
            {
                "description": {"text": f"{fix.message} ({fix.applicability})"},
                "artifactChanges": [
                    {
                        "artifactLocation": _file(f.path),
                        "replacements": [
                            {
                                "deletedRegion": _region(
                                    e.line, e.column, e.end_line, e.end_column
                                ),
                                "insertedContent": {"text": e.text},
                            }
                            for e in fix.edits
                        ],
                    }
                ],
            }
        ]
    return result


def _file(path: str) -> dict[str, str]:
    return {"uri": uri(path)}


def _region(line: int, column: int, end_line: int, end_column: int) -> dict[str, int]:
    return {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }
