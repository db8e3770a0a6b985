"""From the drafts of a program to the document of one file."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

from agentkv.lint.formats.python import fields
from agentkv.lint.formats.python.bits import (
    Bits,
    Lit,
    Slot,
    change,
    pieces,
    size,
    slots,
    text_of,
    tight,
)
from agentkv.lint.formats.python.drafts import Draft, PartDraft, all_literals
from agentkv.lint.formats.python.facts import Facts, Where, join, rank
from agentkv.lint.formats.python.frame import module_frame, run_function
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.module import Module
from agentkv.lint.formats.python.program import Program, Site
from agentkv.lint.formats.python.prompts import DYNAMIC
from agentkv.lint.formats.python.shapes import has_evidence, strong_name
from agentkv.lint.formats.python.values import Str, Thing, Use, Value, as_bits
from agentkv.lint.source import Slice
from agentkv.lint.template import (
    Document,
    Level,
    Part,
    Request,
    Setting,
    Suppression,
    Template,
)

_RELEVANT = re.compile(
    r"\bmessages\b|history|\brole\b|\.create\(|\.chat\(|gather\(|\.invoke\(|generate_content|create_\w*agent|Agent\(|system_|\bask"
)
_DEPTH = 4


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
                if any(_in(lit.where, module) for lit in all_literals(d))
                or any(_reached(program, o, module, _DEPTH) for o in _owners(d))
            ]
    open_drafts = [one for d in drafts for one in _specialised(program, d, _DEPTH)]
    settled = [_settled(program, d) for d in open_drafts]
    chosen = _chosen(program, settled, module)
    templates = {id(d): t for d in chosen if (t := _template(d, module)) is not None}
    requests = _requests(program, settled, chosen, templates, module)
    ordered = sorted(templates.values(), key=lambda t: t.slice)
    return Document(
        format="python", templates=tuple(ordered), requests=tuple(requests), suppressions=notes
    )


def _in(where: Where | None, module: Module) -> bool:
    return where is not None and where.module == module.path


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
                has_evidence(code)
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


def _owners(draft: Draft) -> set[str]:
    return {s.param.owner for p in draft.parts for s in slots(p.bits) if s.param is not None}


def _reached(program: Program, owner: str, module: Module, depth: int) -> bool:
    """Whether code of a module calls a function, directly or through others."""
    sites = program.sites.get(owner, [])
    if any(s.where.module == module.path for s in sites):
        return True
    return depth > 0 and any(
        _reached(program, s.caller, module, depth - 1) for s in sites if s.caller != owner
    )


# -- parameters -----------------------------------------------------------------------------------


def _specialised(program: Program, draft: Draft, depth: int) -> list[Draft]:
    """A draft for each call that brings text of its own; the draft itself where none does."""
    open_params = {s.param for p in draft.parts for s in slots(p.bits) if s.param is not None}
    owners = {p.owner for p in open_params}
    for owner in owners:
        sites = program.sites.get(owner, [])
        names = {p.name for p in open_params if p.owner == owner}
        rich = [s for s in sites if any(_has_text(s.bound.get(n)) for n in names)]
        if not rich or depth == 0:
            continue
        out: list[Draft] = []
        for site in _distinct(rich, names):
            parts = tuple(
                _refresh(replace(p, bits=_given(p.bits, owner, site))) for p in draft.parts
            )
            one = replace(draft, parts=parts)
            if draft.request is not None:
                one.request = replace(
                    draft.request,
                    in_loop=draft.request.in_loop or site.in_loop,
                    fan_out=draft.request.fan_out or site.fan,
                )
            out += _specialised(program, one, depth - 1)
        return out or [draft]
    return [draft]


def _refresh(part: PartDraft) -> PartDraft:
    """A run of messages that turned out to be a text is a message."""
    if part.placeholder and any(isinstance(b, Lit) for b in part.bits):
        return replace(
            part, placeholder=False, role="user" if part.role == "unknown" else part.role
        )
    return part


def _has_text(value: Value | None) -> bool:
    return isinstance(value, Str) and len(text_of(value.bits)) >= 24


def _distinct(sites: list[Site], names: set[str]) -> list[Site]:
    found: dict[tuple[object, ...], Site] = {}
    for site in sites:
        key = tuple(
            lit.where
            for n in sorted(names)
            for v in [site.bound.get(n)]
            if isinstance(v, Str)
            for lit in v.bits
            if isinstance(lit, Lit)
        )
        found.setdefault(key, site)
    return list(found.values())[:12]


def _given(bits: Bits, owner: str, site: Site) -> Bits:
    def how(slot: Slot) -> Bits:
        if slot.param is None or slot.param.owner != owner:
            return (slot,)
        value = site.bound.get(slot.param.name)
        if value is None:
            return (replace(slot, param=None),)
        if isinstance(value, Str):
            whole = len(tight(bits)) == 1
            return value.bits if whole else as_bits(value, replace(slot, param=None))
        return _told(slot, [value.facts], value)

    return tight(change(bits, how))


def _told(slot: Slot, facts: list[Facts], value: Value | None = None) -> Bits:
    """A slot whose parameter's value is known from calls."""
    told = join(facts)
    param = value.param if isinstance(value, Thing) else None
    if told.level == "unknown":
        return (replace(slot, param=param),)
    why = f"{told.why}, given as `{slot.param.name}`" if slot.param and told.known else told.why
    merged = replace(told, why=why, reads=slot.facts.reads, traits=told.traits | slot.facts.traits)
    if told.made is None:
        merged = replace(merged, made=slot.facts.made)
    return (replace(slot, facts=merged, param=param),)


def _settled(program: Program, draft: Draft) -> Draft:
    """A draft with what calls and bindings tell of its slots."""

    def how(slot: Slot) -> Bits:
        if slot.field is not None and draft.use is not None:
            given = draft.use.bindings.get(slot.field) or draft.use.bindings.get(
                slot.field.split(".")[0]
            )
            if given:
                told = [_through(program, v) for v in given]
                best = join(told)
                if best.level != "unknown":
                    facts = replace(best, reads=slot.facts.reads)
                    return (replace(slot, facts=facts),)
        if slot.param is None:
            return (slot,)
        told = _calls(program, slot.param.owner, slot.param.name, set())
        return _told(slot, told) if told else (slot,)

    parts = tuple(replace(p, bits=tight(change(p.bits, how))) for p in draft.parts)
    request = draft.request
    if request is not None:
        sites = program.sites.get(draft.owner, [])
        request = replace(
            request,
            fan_out=request.fan_out or any(s.fan for s in sites),
            in_loop=request.in_loop or any(s.in_loop for s in sites),
        )
    return replace(draft, parts=parts, request=request)


def _through(program: Program, value: Value) -> Facts:
    if isinstance(value, Thing) and value.param is not None:
        told = _calls(program, value.param.owner, value.param.name, set())
        if told and (found := join(told)).level != "unknown":
            return found
    return value.facts


def _calls(program: Program, owner: str, name: str, seen: set[tuple[str, str]]) -> list[Facts]:
    """Facts of what a parameter is given, over every call that was seen."""
    if (owner, name) in seen or len(seen) > 8:
        return []
    seen = seen | {(owner, name)}
    out: list[Facts] = []
    for site in program.sites.get(owner, []):
        value = site.bound.get(name)
        if value is None:
            continue
        if isinstance(value, Thing) and value.param is not None:
            inner = _calls(program, value.param.owner, value.param.name, seen)
            out += inner or [value.facts]
        else:
            out.append(value.facts)
    own = guess(name)
    known = [f for f in out if f.level != "unknown"]
    if not known:
        return []
    # A name that speaks of a caller's data is believed over calls with an example in them.
    if all(rank(f.level) < rank("unknown") for f in known) and rank(own.level) > rank("unknown"):
        if len(out) == 1 and own.level in ("turn", "user", "session"):
            return []
    return out


# -- choosing -------------------------------------------------------------------------------------


def _chosen(program: Program, drafts: list[Draft], module: Module) -> list[Draft]:
    """One draft a prompt: what sends it before what only looks like it, the longest first."""
    order = {"sink": 0, "framework": 0, "shape": 1}
    ranked = sorted(
        (d for d in drafts if _ours(program, d, module)),
        key=lambda d: (order[d.evidence], -sum(size(p.bits) for p in d.parts), d.where.start),
    )
    taken: set[tuple[str, int]] = set()
    out: list[Draft] = []
    for draft in ranked:
        keys = {
            (lit.where.module, lit.where.start)
            for lit in all_literals(draft)
            if lit.where is not None
        }
        mine = {k for k in keys if k[0] == module.path}
        if not mine and any(_in(s.where, module) for p in draft.parts for s in slots(p.bits)):
            mine = {(module.path, draft.where.start)}
        if not mine or mine <= taken:
            continue
        if draft.evidence == "shape" and mine & taken:
            continue
        taken |= mine
        out.append(draft)
    return out


def _ours(program: Program, draft: Draft, module: Module) -> bool:
    """Whether a draft is reported in this file: where most of its text is, if that is linted too."""
    sizes: dict[str, int] = {}
    for lit in all_literals(draft):
        if lit.where is not None:
            sizes[lit.where.module] = sizes.get(lit.where.module, 0) + len(lit.value)
    total = sum(size(p.bits) for p in draft.parts)
    if total < 12 and not draft.followed and not _pictures(draft):
        return False
    # Text without a place (repeated, imported) says nothing of where the prompt belongs.
    home = max(sizes, key=lambda m: sizes[m]) if sizes else draft.where.module
    if sizes and sizes[home] < 12 <= total:
        home = draft.where.module
    if home == module.path:
        return True
    if draft.where.module != module.path and module.path not in sizes:
        return False
    linted = {str(p) for p in program.project.files}
    if home in linted or str(Path(home)) in linted:
        return False
    return draft.where.module == module.path


def _pictures(draft: Draft) -> bool:
    """Whether an image varies that need not: it has a price of its own."""
    return any(
        s.facts.traits & {"reencoded", "signed_url"} for p in draft.parts for s in slots(p.bits)
    )


# -- building -------------------------------------------------------------------------------------


def _template(draft: Draft, module: Module) -> Template | None:
    draft = _with_fields(draft, module)
    parts = []
    for p in draft.parts:
        made = pieces(p.bits, module.path)
        if not made and not p.placeholder:
            continue
        parts.append(
            Part(
                role=p.role,
                pieces=made,
                slice=_slice(p.where, module),
                placeholder=p.placeholder,
                marker=_slice(p.marker, module),
            )
        )
    if not parts:
        return None
    where = _region(draft, module)
    if where is None:
        return None
    syntax = _syntax(draft, module)
    return Template(
        format="python",
        name=draft.name,
        parts=tuple(parts),
        slice=where,
        writable=_writable(draft, module),
        followed=draft.followed,
        syntax=syntax,  # type: ignore[arg-type]
    )


def _with_fields(draft: Draft, module: Module) -> Draft:
    """A constant found by its looks: its placeholders, unless it is used as it stands."""
    use = draft.use
    if draft.evidence != "shape" or (use is not None and use.plain and not use.formatted):
        return draft
    if any(isinstance(b, Slot) for p in draft.parts for b in p.bits) and not (
        use and use.formatted
    ):
        return draft
    if not (use and use.formatted) and any(
        lit.where is not None and _in(lit.where, module) and _in_fstring(module, lit.where.start)
        for lit in all_literals(draft)
    ):
        return draft  # braces that are left in an f-string are text
    text = "".join(text_of(p.bits) for p in draft.parts)
    syntax = use.syntax if use is not None and use.syntax else fields.guess_syntax(text)
    if syntax is None:
        return draft
    bindings = use.bindings if use is not None else {}

    def resolve(name: str) -> Facts:
        given = bindings.get(name) or bindings.get(name.split(".")[0])
        if given:
            told = join(v.facts for v in given)
            if told.level != "unknown":
                return told
        return guess(name)

    parts = tuple(
        replace(p, bits=tight(fields.split(p.bits, syntax, resolve)))  # type: ignore[arg-type]
        for p in draft.parts
    )
    return replace(draft, parts=parts)


def _slice(where: Where | None, module: Module) -> Slice | None:
    return (
        Slice(where.start, where.end) if where is not None and where.module == module.path else None
    )


def _region(draft: Draft, module: Module) -> Slice | None:
    own = [
        lit.where for lit in all_literals(draft) if lit.where is not None and _in(lit.where, module)
    ]
    if _in(draft.where, module):
        inside = [w for w in own if draft.where.start <= w.start and w.end <= draft.where.end]
        if inside or not own:
            return Slice(draft.where.start, draft.where.end)
    if not own:
        return None
    first = next((p for p in draft.parts if any(_in(b.where, module) for b in p.bits)), None)
    spots = (
        [b.where for b in first.bits if b.where is not None and _in(b.where, module)]
        if first
        else own
    )
    return Slice(min(w.start for w in spots), max(w.end for w in spots))


_GAP = re.compile(r"""^[\s"'fFrRuUtT+,()\\]*$""")


def _writable(draft: Draft, module: Module) -> bool:
    """Whether every piece stands in this file, in rendering order, with nothing in between."""
    for part in draft.parts:
        if part.placeholder or not any(isinstance(b, Lit) for b in part.bits):
            continue
        last: int | None = None
        for bit in part.bits:
            if not _in(bit.where, module) or bit.where is None:
                return False
            if last is not None and (
                bit.where.start < last or not _GAP.match(module.text[last : bit.where.start])
            ):
                return False
            last = bit.where.end
    return any(p.bits for p in draft.parts)


def _syntax(draft: Draft, module: Module) -> str:
    first = next(
        (s for p in draft.parts for s in p.bits if isinstance(s, Slot) and _in(s.where, module)),
        None,
    )
    if first is None or first.where is None:
        return "none"
    text = module.text[first.where.start : first.where.end]
    if text.startswith(("{{", "{%")):
        return "jinja" if "{%" in text or _jinja(draft) else "mustache"
    if text.startswith("{"):
        return "fstring" if _in_fstring(module, first.where.start) else "format"
    if text.startswith("%"):
        return "percent"
    if text.startswith("$"):
        return "dollar"
    return "python"


def _jinja(draft: Draft) -> bool:
    return not (draft.use is not None and draft.use.syntax == "mustache")


def _in_fstring(module: Module, offset: int) -> bool:
    if module.fstrings is None:
        module.fstrings = [
            (module.offsets.start(n), module.offsets.end(n))
            for n in ast.walk(module.tree)
            if isinstance(n, ast.JoinedStr)
        ]
    return any(a <= offset < b for a, b in module.fstrings)


def _requests(
    program: Program,
    drafts: list[Draft],
    chosen: list[Draft],
    templates: dict[int, Template],
    module: Module,
) -> list[Request]:
    found: dict[tuple[int, int], Request] = {}
    for draft in sorted(drafts, key=lambda d: id(d) not in templates):
        made = draft.request
        if made is None or made.where.module != module.path:
            continue
        key = (made.where.start, made.where.end)
        template = templates.get(id(draft)) or (_template(draft, module) if draft.parts else None)
        if key in found:
            if template is not None and found[key].template is None:
                found[key] = replace(found[key], template=template)
            continue
        ops = []
        for _, op in made.ops:
            place = op.slice if len(op.slice) else Slice(made.where.start, made.where.end)
            ops.append(replace(op, slice=place))
        found[key] = Request(
            api=made.api,
            slice=Slice(made.where.start, made.where.end),
            template=template,
            tools=made.tools,
            settings=tuple(
                Setting(
                    name=s.name,
                    slice=_slice(s.where, module) or Slice(made.where.start, made.where.end),
                    level=_level(s.facts),
                    value=s.value,
                    traits=s.facts.traits,
                )
                for s in made.settings
            ),
            history=tuple(ops),
            markers=tuple(m for w in made.markers if (m := _slice(w, module)) is not None),
            marker_ttls=made.ttls,
            fan_out=made.fan_out,
            in_loop=made.in_loop,
            model=made.model,
        )
    return [found[k] for k in sorted(found)]


def _level(facts: Facts) -> Level:
    return facts.level
