"""JUnit XML: one suite a file with findings, one passing case for each file without."""

from __future__ import annotations

import re
from collections import defaultdict
from xml.sax.saxutils import escape, quoteattr

from agentkv.lint.output.style import Style, fix_label
from agentkv.lint.output.uri import here
from agentkv.lint.result import Report, Reported

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(report: Report, style: Style) -> str:
    found: dict[str, list[Reported]] = defaultdict(list)
    for f in report.findings:
        found[f.path].append(f)
    suites: list[str] = []
    tests = 0
    for file in report.files:
        if not file.prompts and not file.requests and not file.skipped and file.path not in found:
            continue  # thousands of files that hold no prompt say nothing
        cases = [_case(f, style) for f in found.pop(file.path, ())]
        skipped = file.skipped is not None
        if skipped:
            cases.append(
                f"    <testcase name={_attr('skipped')} classname={_attr(here(file.path))}>"
                f"<skipped message={_attr(file.skipped or '')}/></testcase>"
            )
        failures = len(cases) - skipped
        if not cases:
            cases = [f'    <testcase name="agentkv lint" classname={_attr(here(file.path))}/>']
        tests += len(cases)
        suites.append(
            f"  <testsuite name={_attr(here(file.path))} tests={_attr(len(cases))} "
            f"failures={_attr(failures)} errors={_attr(0)} skipped={_attr(int(skipped))}>\n"
            + "\n".join(cases)
            + "\n  </testsuite>"
        )
    body = "".join(suite + "\n" for suite in suites)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="agentkv lint" tests="{tests}" failures="{len(report.findings)}" '
        f'errors="0">\n{body}</testsuites>\n'
    )


def _case(f: Reported, style: Style) -> str:
    name = f"{f.code} {f.name} {f.line}:{f.column}"
    message = style.message(f) + fix_label(f)
    return (
        f"    <testcase name={_attr(name)} classname={_attr(here(f.path))} "
        f"file={_attr(here(f.path))} line={_attr(f.line)}>\n"
        f"      <failure type={_attr(f.severity)} message={_attr(message)}>"
        f"{escape(_clean(f'{here(f.path)}:{f.line}:{f.column} {message}'))}</failure>\n"
        "    </testcase>"
    )


def _attr(value: object) -> str:
    return quoteattr(_clean(str(value)), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
