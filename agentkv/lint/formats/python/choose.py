"""One prompt for one text, in the file where it belongs."""

from __future__ import annotations

from pathlib import Path

from agentkv.lint.formats.python.bits import (
    Bit,
    size,
    slots,
)
from agentkv.lint.formats.python.drafts import Draft, all_literals
from agentkv.lint.formats.python.facts import Where, rank
from agentkv.lint.formats.python.module import Module
from agentkv.lint.formats.python.program import Program
from agentkv.lint.formats.python.shapes import has_evidence


def stands_in(where: Where | None, module: Module) -> bool:
    return where is not None and where.module == module.path


def choose(program: Program, drafts: list[Draft], module: Module) -> list[Draft]:
    """One draft a prompt: what sends it before what only looks like it, the longest first."""
    order = {"sink": 0, "framework": 0, "shape": 1}
    ranked = sorted(
        (d for d in drafts if _ours(program, d, module)),
        key=lambda d: (order[d.evidence], -sum(size(p.bits) for p in d.parts), d.where.start),
    )
    taken: set[tuple[str, int]] = set()
    told: set[tuple[str, int]] = set()
    out: list[Draft] = []
    for draft in ranked:
        keys = {
            (lit.where.module, lit.where.start)
            for lit in all_literals(draft)
            if lit.where is not None
        }
        mine = {k for k in keys if k[0] == module.path}
        if not mine and any(stands_in(s.where, module) for p in draft.parts for s in slots(p.bits)):
            mine = {(module.path, draft.where.start)}
        if not mine or (mine <= taken and (draft.evidence == "shape" or not _adds(draft, told))):
            continue
        if draft.evidence == "shape" and mine & taken:
            continue
        taken |= mine
        told |= _places(draft)
        out.append(draft)
    return out


def _places(draft: Draft) -> set[tuple[str, int]]:
    """Where the texts and slots of a prompt stand."""
    bits: list[Bit] = [*all_literals(draft), *(s for p in draft.parts for s in slots(p.bits))]
    return {(b.where.module, b.where.start) for b in bits if b.where is not None}


def _adds(draft: Draft, told: set[tuple[str, int]]) -> bool:
    """Whether a prompt that shares its long text with others says anything of its own: one constant
    may be sent by several functions, and only one of them puts a clock in front."""
    return bool(_varying(draft) - told)


def _varying(draft: Draft, *, guessed: bool = False) -> set[tuple[str, int]]:
    """Where the slots stand that are known (or by their names thought) to change between calls."""
    return {
        (s.where.module, s.where.start)
        for p in draft.parts
        for s in slots(p.bits)
        if s.where is not None
        and (guessed or s.facts.known)
        and rank(s.facts.level) > rank("deploy")
    }


def _ours(program: Program, draft: Draft, module: Module) -> bool:
    """Whether a draft is reported in this file: where most of its text is, if that is linted too."""
    sizes: dict[str, int] = {}
    for lit in all_literals(draft):
        if lit.where is not None:
            sizes[lit.where.module] = sizes.get(lit.where.module, 0) + len(lit.value)
    total = sum(size(p.bits) for p in draft.parts)
    if (
        total < 12
        and not (draft.followed and total)
        and not _says(draft, "reencoded", "signed_url", "fixed_text")
    ):
        return False
    # Text without a place (repeated, imported) says nothing of where the prompt belongs.
    home = max(sizes, key=lambda m: sizes[m]) if sizes else draft.where.module
    if sizes and sizes[home] < 12 <= total:
        home = draft.where.module
    changing = {where for where, _ in _varying(draft, guessed=True)}
    if sizes and home not in changing:
        # A constant of another file: the line to change is where something was put before it.
        beside = [m for m in sizes if m in changing] or changing & {draft.where.module}
        home = max(beside, key=lambda m: sizes.get(m, 0), default=home)
    if home == module.path:
        return True
    if draft.where.module != module.path and module.path not in sizes:
        return False
    linted = {str(p) for p in program.project.files}
    if (home in linted or str(Path(home)) in linted) and _read_there(program, home):
        return False
    return draft.where.module == module.path


def _says(draft: Draft, *traits: str) -> bool:
    """Whether a value in it has one of these traits: an image that varies, a text of unknown size."""
    return any(s.facts.traits & set(traits) for p in draft.parts for s in slots(p.bits))


def _read_there(program: Program, home: str) -> bool:
    """Whether a run looks for prompts in that file: one without any sign of them is passed over."""
    module = program.modules.get(home)
    return module is None or has_evidence(module.text)
