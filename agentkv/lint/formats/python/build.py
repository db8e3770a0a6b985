"""From drafts to templates and requests."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python import fields
from agentkv.lint.formats.python.bits import (
    Lit,
    Slot,
    pieces,
    text_of,
    tight,
)
from agentkv.lint.formats.python.choose import stands_in
from agentkv.lint.formats.python.drafts import Draft, all_literals
from agentkv.lint.formats.python.facts import Facts, Where, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.module import Module
from agentkv.lint.formats.python.program import Program
from agentkv.lint.source import Slice
from agentkv.lint.template import (
    Level,
    Part,
    Request,
    Setting,
    Template,
)

_GAP = re.compile(r"""^[\s"'fFrRuUtT+,()\\]*$""")


def template_of(draft: Draft, module: Module) -> Template | None:
    draft = _with_fields(draft, module)
    parts = []
    ahead = 0  # blocks of messages without a text of their own (tool calls)
    for p in draft.parts:
        made = pieces(p.bits, module.path)
        if not made and not p.placeholder:
            ahead += p.blocks
            continue
        parts.append(
            Part(
                role=p.role,
                pieces=made,
                slice=_slice(p.where, module),
                placeholder=p.placeholder,
                marker=_slice(p.marker, module),
                blocks=ahead + p.blocks,
                marked=tuple(ahead + m for m in p.marked),
            )
        )
        ahead = 0
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
        lit.where is not None
        and stands_in(lit.where, module)
        and _in_fstring(module, lit.where.start)
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
        lit.where
        for lit in all_literals(draft)
        if lit.where is not None and stands_in(lit.where, module)
    ]
    if stands_in(draft.where, module):
        inside = [w for w in own if draft.where.start <= w.start and w.end <= draft.where.end]
        if inside or not own:
            return Slice(draft.where.start, draft.where.end)
    if not own:
        return None
    first = next((p for p in draft.parts if any(stands_in(b.where, module) for b in p.bits)), None)
    spots = (
        [b.where for b in first.bits if b.where is not None and stands_in(b.where, module)]
        if first
        else own
    )
    return Slice(min(w.start for w in spots), max(w.end for w in spots))


def _writable(draft: Draft, module: Module) -> bool:
    """Whether every piece stands in this file, in rendering order, with nothing in between."""
    for part in draft.parts:
        if part.placeholder or not any(isinstance(b, Lit) for b in part.bits):
            continue
        last: int | None = None
        for bit in part.bits:
            if not stands_in(bit.where, module) or bit.where is None:
                return False
            if last is not None and (
                bit.where.start < last or not _GAP.match(module.text[last : bit.where.start])
            ):
                return False
            last = bit.where.end
    return any(p.bits for p in draft.parts)


def _syntax(draft: Draft, module: Module) -> str:
    first = next(
        (
            s
            for p in draft.parts
            for s in p.bits
            if isinstance(s, Slot) and stands_in(s.where, module)
        ),
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


def requests_of(
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
        template = templates.get(id(draft)) or (template_of(draft, module) if draft.parts else None)
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
