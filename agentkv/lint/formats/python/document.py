"""From the drafts of a program to the document of one file."""

from __future__ import annotations

import ast
import re

from agentkv.lint.formats.python.bits import (
    size,
    slots,
)
from agentkv.lint.formats.python.build import requests_of, template_of
from agentkv.lint.formats.python.choose import choose, stands_in
from agentkv.lint.formats.python.drafts import all_literals
from agentkv.lint.formats.python.frame import module_frame, run_function
from agentkv.lint.formats.python.looks import DYNAMIC
from agentkv.lint.formats.python.module import Module
from agentkv.lint.formats.python.parameters import (
    DEPTH,
    owners_of,
    reaches,
    settle_draft,
    specialise,
)
from agentkv.lint.formats.python.program import Program
from agentkv.lint.formats.python.shapes import has_evidence, strong_name
from agentkv.lint.formats.python.values import Str, Use
from agentkv.lint.template import (
    Document,
    Suppression,
)

_RELEVANT = re.compile(
    r"\bmessages\b|history|\brole\b|\.create\(|\.chat\(|gather\(|\.invoke\(|generate_content|create_\w*agent|Agent\(|\.override\(|system_|\bask"
)


def document(program: Program, module: Module, notes: tuple[Suppression, ...]) -> Document:
    """Everything found in one module, with what the rest of the project tells of it."""
    program.begin()
    if f"{module.path}:" not in program.frames:
        program.alone, program.wants = True, False
        try:
            _read(program, module)
        finally:
            program.alone = False
        if not program.wants and not program.drafts.get(module.path):
            return Document(format="python", suppressions=notes)
        program.forget(module)
    _read(program, module)
    names = _names_to_follow(program, module)
    for name in names:
        _read(program, module, name)
    for name in names:
        for other in program.mentions(name, module):
            _read(program, other, name)
    drafts = list(program.drafts.get(module.path, ()))
    for path, more in program.drafts.items():
        if path != module.path:
            drafts += [
                d
                for d in more
                if any(stands_in(lit.where, module) for lit in all_literals(d))
                or any(reaches(program, o, module, DEPTH) for o in owners_of(d))
            ]
    open_drafts = [one for d in drafts for one in specialise(program, d, DEPTH)]
    settled = [settle_draft(program, d) for d in open_drafts]
    chosen = choose(program, settled, module)
    templates = {id(d): t for d in chosen if (t := template_of(d, module)) is not None}
    requests = requests_of(program, settled, chosen, templates, module)
    ordered = sorted(templates.values(), key=lambda t: t.slice)
    return Document(
        format="python", templates=tuple(ordered), requests=tuple(requests), suppressions=notes
    )


def _read(program: Program, module: Module, name: str | None = None) -> None:
    """Look through a module: its own statements, and the functions that may matter."""
    base = module_frame(program, module)
    base.run_rest()
    long = [n for n, v in base.env.items() if isinstance(v, Str) and size(v.bits) >= 60]
    constants = re.compile(rf"\b(?:{'|'.join(map(re.escape, long))})\b") if long else None
    for owner_name, function in list(module.functions.items()):
        if function.owner in program.frames:
            continue
        if name is not None and not _mentions(module, name):
            return
        code = module.code(function.node) if not isinstance(function.node, ast.Lambda) else ""
        if name is None:
            wanted = (
                any(s.rpartition(".")[2] in code for s in program.project.sinks)
                or has_evidence(code)
                or _RELEVANT.search(code) is not None
                or any(DYNAMIC.search(d) for d in function.decorators)
                or (constants is not None and constants.search(code) is not None)
            )
        else:
            wanted = name in code
        if wanted:
            outer = owner_name.rpartition(".")[0]
            if outer in module.functions and module.functions[outer].owner not in program.frames:
                run_function(program, module.functions[outer])
            run_function(program, function)


def _mentions(module: Module, name: str) -> bool:
    return len(re.findall(rf"\b{re.escape(name)}\b", module.text)) > 1


def _names_to_follow(program: Program, module: Module) -> list[str]:
    """Names of this module whose use elsewhere tells more: prompts, and functions with open ends."""
    found: dict[str, None] = {}
    for draft in list(program.drafts.get(module.path, ())):
        params = [s.param for p in draft.parts for s in slots(p.bits) if s.param is not None]
        for param in params:
            owner = param.owner.rpartition(":")[2]
            parts = owner.split(".")
            name = (
                parts[-2]
                if parts[-1] in ("__init__", "__post_init__") and len(parts) > 1
                else parts[-1]
            )
            found[name] = None
        if draft.evidence in ("shape", "framework"):
            if draft.owner.endswith(":"):
                found[draft.name] = None
            elif not draft.owner.endswith(".__init__"):
                found[draft.owner.rpartition(":")[2].rpartition(".")[2]] = None
                if strong_name(draft.name):
                    found[draft.name] = None
    base = module_frame(program, module)
    for name, value in base.env.items():
        use = getattr(value, "use", None)
        if isinstance(use, Use) and not isinstance(value, Str):
            found[name] = None
    return [n for n in found if n.isidentifier() and n not in ("__init__", "main")]
