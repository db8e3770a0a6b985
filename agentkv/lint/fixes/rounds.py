"""Which fixes of a file are made in one go, and what a layout looks like afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentkv.lint.context import Context
from agentkv.lint.finding import Bar, Finding, Fix
from agentkv.lint.fixes.proof import Unproven, read
from agentkv.lint.formats import Project
from agentkv.lint.price import bars, nominal
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Hole, Level, Template

ROUNDS = 10
"""Times that a file is fixed and read again at most."""


def chosen(findings: Iterable[Finding]) -> list[Fix]:
    """The fixes of some findings, largest saving first: what `apply` takes."""
    ordered = sorted(findings, key=lambda f: (-f.tokens_lost, f.slice.start, f.code))
    return [f.fix for f in ordered if f.fix is not None]


def hull(fix: Fix) -> tuple[int, int]:
    """From the first edit's start to the last one's end: a fix was proven for this stretch."""
    return min(e.slice.start for e in fix.edits), max(e.slice.end for e in fix.edits)


def apply(source: Source, fixes: Sequence[Fix], *, unsafe: bool) -> tuple[Source, list[Fix]]:
    """The source with those fixes made that do not touch each other, and these fixes.

    `fixes` come largest saving first (`chosen`). One that overlaps an earlier one is left out: the
    caller lints the result again and comes back, until nothing is left or `ROUNDS` times. Without
    `unsafe` only safe fixes are made. Fixes that were refused are never made.
    """
    taken: list[tuple[int, int]] = []
    made: list[Fix] = []
    for fix in fixes:
        if fix.refused is not None or not fix.edits or fix.applicability == "display":
            continue
        if fix.applicability == "unsafe" and not unsafe:
            continue
        start, end = hull(fix)
        if any(start <= b and a <= end for a, b in taken):
            continue
        taken.append((start, end))
        made.append(fix)
    if not made:
        return source, []
    return source.apply(e for f in made for e in f.edits), made


def after(
    document: Document,
    finding: Finding,
    fix: Fix | None,
    source: Source,
    context: Context,
    project: Project | None = None,
) -> Bar | None:
    """The layout as it is once the fix is made: read from the edited text, not drawn by hand. None
    where no fix moves anything."""
    if (
        fix is None
        or not fix.edits
        or fix.refused is not None
        or finding.template is None
        or finding.at is None
    ):
        return None
    try:
        n = document.templates.index(finding.template)
        made = read(source.apply(fix.edits), document, project).document
        return layout(made.templates[n], context)
    except (ValueError, IndexError, Unproven):
        return None


def layout(template: Template, context: Context) -> Bar:
    """A prompt as runs of one level."""
    first = next(iter(template.holes()), None)
    if first is not None:
        return bars(template, first[:2], context)[0]
    runs: list[tuple[Level, int]] = []
    for _, _, piece in template.pieces():
        tokens = nominal(piece, context) if isinstance(piece, Hole) else context.tokens(piece)
        if tokens > 0:
            runs.append(("build", tokens))
    return Bar(runs=(("build", sum(t for _, t in runs)),)) if runs else Bar(runs=())
