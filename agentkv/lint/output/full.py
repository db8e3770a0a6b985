"""Findings with their source line, the fix, and the layout before and after."""

from __future__ import annotations

from agentkv.lint.output.bar import bars
from agentkv.lint.output.concise import line
from agentkv.lint.output.style import Style, fixable, summary
from agentkv.lint.result import Report, Reported

_MOST = 160
"""Characters of a source line that are shown."""


def write(report: Report, style: Style) -> str:
    blocks = ["\n".join(block(f, style)) for f in report.findings]
    end = [style.paint(summary(report), "bold")]
    if fixes := fixable(report):
        end.append(fixes)
    if report.findings and not report.exact:
        end.append("Tokens are estimated; --tokenizer PATH counts them.")
    for file in report.skipped[:20]:
        end.append(style.paint(f"skipped {file.path}: {file.skipped}", "dim"))
    for file in report.files:
        end += [style.paint(f"note {file.path}: {note}", "dim") for note in file.notes]
    return "\n\n".join([*blocks, "\n".join(end)]) + "\n"


def block(f: Reported, style: Style) -> list[str]:
    out = [line(f, style)]
    if f.excerpt.strip() and not style.redact:
        out += _excerpt(f, style)
    for other in f.also:
        said = "" if style.redact else f" {other.text}"
        out.append(style.paint(f"   = also {f.path}:{other.line}:{other.column}{said}", "dim"))
    fix = f.fix
    if fix is not None and fix.refused:
        out.append(f"   = no fix: {'refused' if style.redact else fix.refused}")
    elif fix is not None and fix.message:
        out.append(f"   = fix: {style.fix_message(f)}")
    out += [f"   {row}" for row in bars(f.before, f.after, style)]
    return out


def _excerpt(f: Reported, style: Style) -> list[str]:
    text = f.excerpt.expandtabs(1)
    start = f.column - 1
    shift = 0
    if len(text) > _MOST:
        shift = max(0, min(start - _MOST // 3, len(text) - _MOST))
        text = text[shift : shift + _MOST]
    start = min(max(start - shift, 0), len(text))
    end = f.end_column - 1 - shift if f.end_line == f.line else len(text)
    end = min(max(end, start + 1), max(len(text), start + 1))
    number = str(f.line)
    gap = " " * len(number)
    marks = style.severity(f.severity, "^" * (end - start))
    return [
        f" {style.paint(number + ' |', 'dim')} {text}",
        f" {gap} {style.paint('|', 'dim')} {' ' * _cells(text[:start])}{marks}",
    ]


def _cells(text: str) -> int:
    """Columns of a terminal that a text takes."""
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
