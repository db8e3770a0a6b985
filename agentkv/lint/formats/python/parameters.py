"""What calls tell of parameters: a prompt for each caller, and levels for the rest."""

from __future__ import annotations

from dataclasses import replace

from agentkv.lint.formats.python.bits import (
    Bits,
    Lit,
    Slot,
    change,
    slots,
    text_of,
    tight,
)
from agentkv.lint.formats.python.drafts import Draft, PartDraft
from agentkv.lint.formats.python.facts import Facts, join, rank
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.module import Module
from agentkv.lint.formats.python.program import Program, Site
from agentkv.lint.formats.python.values import Many, Str, Thing, Value, as_bits

DEPTH = 4
_MOST = 60
"""Prompts that one wrapper is followed to."""


def owners_of(draft: Draft) -> set[str]:
    return {s.param.owner for p in draft.parts for s in slots(p.bits) if s.param is not None}


def reaches(program: Program, owner: str, module: Module, depth: int) -> bool:
    """Whether code of a module calls a function, directly or through others."""
    sites = program.sites.get(owner, [])
    if any(s.where.module == module.path for s in sites):
        return True
    return depth > 0 and any(
        reaches(program, s.caller, module, depth - 1) for s in sites if s.caller != owner
    )


def specialise(program: Program, draft: Draft, depth: int) -> list[Draft]:
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
            out += specialise(program, one, depth - 1)
            if len(out) >= _MOST:
                break
        return out[:_MOST] or [draft]
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
        if _conversation(slot.name, value):
            return (replace(slot, param=None),)
        return _told(slot, [value.facts], value)

    return tight(change(bits, how))


def _conversation(name: str, value: Value) -> bool:
    """Whether a parameter is given a conversation with something behind it. What changes in the
    last message says nothing of the messages before, which only grow."""
    if not isinstance(value, Many) or len(value.items) < 2:
        return False
    if "history" not in guess(name).traits | value.facts.traits:
        return False
    first = value.items[0]
    return first.spread or rank(first.value.facts.level) < rank(value.facts.level)


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


def settle_draft(program: Program, draft: Draft) -> Draft:
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
        if value is None or _conversation(name, value):
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
    fixed = all(rank(f.level) < rank("unknown") for f in known)
    if fixed and len(out) == 1 and own.level in ("turn", "user", "session"):
        return []
    return out
