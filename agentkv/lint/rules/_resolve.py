"""One finding a slot: which rule's finding is kept, and which findings are one.

The same slot may be caught by several rules (a clock before static text is volatile content *and* an
order problem). The rule that is certain goes before the one that judges by signs, then the lower
rank, then the code: that is all, so the same file always gives the same findings. Then neighbours
become one: a name that is used again, and holes of one rule with hardly any text between them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from agentkv.lint.context import Context
from agentkv.lint.finding import SEVERITIES, Finding
from agentkv.lint.rule import Rule, rule_named
from agentkv.lint.template import Hole

GAP = 32
"""Static tokens between two holes up to which they are one slot."""
MOST_ALSO = 8


def resolve(findings: list[Finding], context: Context) -> list[Finding]:
    """The findings to report, by where they stand."""
    kept: dict[object, Finding] = {}
    for one in sorted(findings, key=_order):
        kept.setdefault(_place(one), one)
    # A section and what is inside it are one slot, unless the rules differ in certainty.
    out = _apart(list(kept.values()))
    out = _merged(out, context)
    return sorted(out, key=lambda f: (f.slice.start, f.slice.end, f.code))


def _order(one: Finding) -> tuple[bool, int, str, int]:
    rule = _rule(one)
    return rule.certainty == "heuristic", rule.rank, one.code, one.slice.start


def _rule(one: Finding) -> type[Rule]:
    return rule_named(one.code)


def _place(one: Finding) -> object:
    """What is one slot: the same characters of the file, or the same hole where it has none."""
    hole = _hole(one)
    if one.at is not None and (hole is None or hole.slice is None):
        return one.slot, one.template.slice if one.template else None
    return one.slice.start, one.slice.end


def _hole(one: Finding) -> Hole | None:
    if one.at is None or one.template is None:
        return None
    piece = one.template.parts[one.at[0]].pieces
    found = piece[one.at[1]] if one.at[1] < len(piece) else None
    return found if isinstance(found, Hole) else None


def _apart(findings: list[Finding]) -> list[Finding]:
    """Of a section and the holes inside it only the best finding stays."""
    groups: dict[object, list[Finding]] = defaultdict(list)
    out: list[Finding] = []
    for one in findings:
        hole = _hole(one)
        if hole is None or not hole.inner or one.template is None:
            out.append(one)
        else:
            groups[(one.template.slice, one.template.name, one.at)].append(one)
    for group in groups.values():
        best = min(group, key=_order)
        codes = {best.code}
        out.append(best)
        for one in sorted(group, key=_order):
            # Two different things inside one section, a clock and a random id, are two slots.
            if one.code not in codes and _rule(one).rank < 30 and one.slice != best.slice:
                codes.add(one.code)
                out.append(one)
    return out


def _merged(findings: list[Finding], context: Context) -> list[Finding]:
    groups: dict[object, list[Finding]] = defaultdict(list)
    out: list[Finding] = []
    for one in findings:
        if one.at is None or one.template is None:
            out.append(one)
        else:
            groups[(one.template.slice, one.template.name, one.code)].append(one)
    for group in groups.values():
        group.sort(key=lambda f: (f.at or (0, 0), f.slice.start))
        heads: list[Finding] = []
        for one in group:
            head = next((h for h in heads if _same(h, one)), None)
            if head is None and heads and (_near(heads[-1], one, context) or one.code == "KV215"):
                head = heads[-1]
            if head is None:
                heads.append(one)
            else:
                heads[heads.index(head)] = _joined(head, one)
        out += heads
    return out


def _same(a: Finding, b: Finding) -> bool:
    """The same variable again."""
    return a.slot.rsplit("#", 1)[0] == b.slot.rsplit("#", 1)[0]


def _near(a: Finding, b: Finding, context: Context) -> bool:
    if a.template is None or a.at is None or b.at is None or a.at[0] != b.at[0]:
        return False
    pieces = a.template.parts[a.at[0]].pieces[a.at[1] + 1 : b.at[1]]
    return sum(context.tokens(p) for p in pieces) <= GAP


def _joined(head: Finding, more: Finding) -> Finding:
    worst = min((head, more), key=lambda f: (SEVERITIES.index(f.severity), -f.tokens_lost))
    place = (more.slice, "and here")
    also = (
        head.also
        if len(head.also) >= MOST_ALSO or place in head.also or more.slice == head.slice
        else (*head.also, place)
    )
    if worst is head:
        return replace(head, also=also)
    return replace(
        head,
        also=also,
        severity=worst.severity,
        tokens_lost=max(head.tokens_lost, more.tokens_lost),
        share=max(head.share, more.share),
    )
