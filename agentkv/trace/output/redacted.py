"""Reports without a word of any prompt: places, names of rules and numbers stay."""

from __future__ import annotations

from dataclasses import replace

from agentkv.trace.diff import LogDiff
from agentkv.trace.explain import Explanation
from agentkv.trace.report import Example, TraceReport, TreeNode
from agentkv.trace.show import Session
from agentkv.trace.told import Told


def without_text(report: TraceReport) -> TraceReport:
    return replace(
        report,
        causes=tuple(
            replace(c, first=_example(c.first), worst=_example(c.worst)) for c in report.causes
        ),
        tree=None if report.tree is None else _node(report.tree),
    )


def session_without_text(session: Session) -> Session:
    return replace(
        session,
        steps=tuple(
            replace(s, said="", changes=tuple(told_without_text(c) for c in s.changes))
            for s in session.steps
        ),
    )


def diff_without_text(diff: LogDiff) -> LogDiff:
    """Of two reports that were redacted already."""
    return replace(
        diff,
        layout=tuple(replace(c, text="", was=None, now=None) for c in diff.layout),
    )


def explanation_without_text(e: Explanation) -> Explanation:
    return replace(
        e,
        context=None,
        was=None,
        now=None,
        was_token=None,
        now_token=None,
        detail=None,
        changes=tuple(told_without_text(c) for c in e.changes),
    )


def told_without_text(change: Told) -> Told:
    return replace(change, was="", now="", before="", detail=None)


def _example(e: Example) -> Example:
    return replace(e, was=None, now=None, before=None)


def _node(node: TreeNode) -> TreeNode:
    """A label is the part's name, a colon, and its first words: the name stays."""
    name = node.label.partition(":")[0]
    return replace(node, label=name, children=tuple(_node(c) for c in node.children))
