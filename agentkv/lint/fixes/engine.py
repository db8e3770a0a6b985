"""From a finding to its fix."""

from __future__ import annotations

from dataclasses import replace

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Fix
from agentkv.lint.fixes import proof
from agentkv.lint.fixes.mechanical import MECHANICAL
from agentkv.lint.fixes.move import Move, Refused, move
from agentkv.lint.fixes.proof import Unproven
from agentkv.lint.fixes.rounds import apply
from agentkv.lint.formats import Project
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Template

__all__ = ["apply", "propose"]

_STAYS = frozenset({"KV104", "KV107", "KV112", "KV213", "KV214"})
"""Rules about a hole that would be as wrong anywhere else."""


def propose(
    document: Document,
    finding: Finding,
    source: Source,
    context: Context,
    project: Project | None = None,
) -> Fix | None:
    """The fix of a finding, proven; with `refused` where there is one that must not be made; None
    where only a person can help.

    `project` is that of the run: its root, levels and sinks are used to read the edited text again.
    """
    mechanical = MECHANICAL.get(finding.name)
    try:
        if mechanical is not None:
            found = mechanical(document, finding, source, context)
            return _proven(document, finding, source, found, project) if found is not None else None
        if finding.at is None or finding.template is None or finding.code in _STAYS:
            return None
        if finding.code[:3] not in ("KV1", "KV2", "KV4"):
            return None
        return _moved(document, finding, finding.template, source, context, project)
    except (Refused, Unproven) as why:
        return Fix(applicability="display", message="Not fixed", refused=_sentence(str(why)))


def _moved(
    document: Document,
    finding: Finding,
    template: Template,
    source: Source,
    context: Context,
    project: Project | None,
) -> Fix:
    assert finding.at is not None
    documents = finding.code == "KV205"
    made = move(source, document.format, template, finding.at, context, documents=documents)
    if template not in document.templates:
        raise Unproven("its prompt is not one of this file's.")
    n = document.templates.index(template)
    edited = source.apply(made.edits)
    before = proof.read(source, document, project).document
    after = proof.read(edited, document, project).document
    if n >= len(before.templates):
        raise Unproven("the file is read as something else now.")
    old = before.templates[n]
    proofs = [
        proof.same_outside(source, edited, made.edits),
        proof.same_templates(before, after, n),
    ]
    new = after.templates[n]
    proofs.append(proof.same_units(old, new))
    filled = proof.same_filled(source, edited, old, new)
    if filled:
        proofs.append(filled)
    proofs.append(_once(edited, document, old, new, finding, context, made, documents))
    proofs.append("nothing points at it, at its old place or its new one")
    return Fix(
        applicability="unsafe", message=_message(made), edits=made.edits, proof=tuple(proofs)
    )


def _once(
    edited: Source,
    document: Document,
    old: Template,
    new: Template,
    finding: Finding,
    context: Context,
    made: Move,
    documents: bool,
) -> str:
    """A second run finds nothing to do. Raises `Unproven`."""
    assert finding.at is not None
    hole = old.parts[finding.at[0]].pieces[finding.at[1]]
    places = [
        (i, j)
        for i, j, h in new.holes()
        if h.expr == getattr(hole, "expr", None) and h.name == getattr(hole, "name", None)
    ]
    if not places:
        raise Unproven("the variable that was to move is not found again.")
    try:
        again = move(edited, document.format, new, places[-1], context, documents=documents)
    except Refused:
        return "a second run changes nothing"
    if edited.apply(again.edits).text == edited.text:
        return "a second run changes nothing"
    raise Unproven("a second run would move it again.")


def _message(made: Move) -> str:
    where = (
        "to a block at the end of the last user message"
        if made.user
        else "behind the text that lasts longer"
    )
    return f"Move `{made.name}` {where}"


def _proven(
    document: Document, finding: Finding, source: Source, fix: Fix, project: Project | None
) -> Fix:
    """A mechanical fix: nothing else changes, and the file is still read as the same prompts."""
    if fix.refused is not None or not fix.edits:
        return fix
    edited = source.apply(fix.edits)
    proofs = [proof.same_outside(source, edited, fix.edits)]
    before = proof.read(source, document, project).document
    after = proof.read(edited, document, project).document
    if len(before.templates) != len(after.templates) or len(before.requests) != len(after.requests):
        raise Unproven("the edited file is read as other prompts.")
    proofs.append(
        f"read again: the same {len(after.templates)} prompts and {len(after.requests)} requests"
    )
    return replace(fix, proof=(*proofs, *fix.proof))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
