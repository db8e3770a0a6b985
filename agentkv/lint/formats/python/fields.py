"""Placeholders in the text of a string: `{x}`, `%s`, `$x`, `{{ x }}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from agentkv.lint.formats.python.bits import Bit, Bits, Lit, Slot
from agentkv.lint.formats.python.facts import Facts, Where, fact, join

Syntax = Literal["format", "percent", "dollar", "jinja", "mustache"]
Resolve = Callable[[str], Facts]

_FORMAT = re.compile(
    r"\{\{|\}\}|\{(?P<name>[^{}!:\[.\s]*)(?P<rest>[.\[][^{}!:]*)?(?P<conv>![rsa])?(?P<spec>:(?:[^{}]|\{[^{}]*\})*)?\}"
)
_PERCENT = re.compile(
    r"%%|%\((?P<name>[^()\n]+)\)[#0\- +]*[\d*]*(?:\.[\d*]+)?[diouxXeEfFgGcrsa]"
    r"|%(?P<pos>[#0\-+]*[\d*]*(?:\.[\d*]+)?[diouxXeEfFgGcrsa])"
)
_DOLLAR = re.compile(r"\$\$|\$(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>[A-Za-z_]\w*)\}")
_JINJA = re.compile(
    r"\{#.*?#\}|\{%-?\s*raw\s*-?%\}.*?\{%-?\s*endraw\s*-?%\}"
    r"|\{%[-+]?(?P<tag>.*?)[-+]?%\}|\{\{[-+]?(?P<expr>.*?)[-+]?\}\}",
    re.DOTALL,
)
_MUSTACHE = re.compile(
    r"\{\{![^}]*\}\}|\{\{(?P<kind>[#^/>]?)\s*(?P<name>[\w.]+)\s*\}\}|\{\{[{&]\s*(?P<raw>[\w.]+)\s*\}?\}\}"
)
_NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*(?:\.\w+)*")
_WORDS = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "is",
        "if",
        "else",
        "elif",
        "for",
        "endif",
        "endfor",
        "set",
        "block",
        "endblock",
        "true",
        "false",
        "none",
        "True",
        "False",
        "None",
        "loop",
        "recursive",
        "ignore",
        "missing",
        "with",
        "without",
        "context",
        "import",
        "from",
        "as",
        "macro",
        "endmacro",
        "filter",
        "call",
        "endcall",
        "include",
        "extends",
        "endset",
    ]
)


@dataclass(slots=True)
class _Mark:
    """One match: literal replacement, hole, or the edge of a section."""

    start: int
    end: int
    text: str | None = None
    name: str = ""
    open: str | None = None
    close: bool = False
    turn: bool = False
    reads: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()


def guess_syntax(text: str) -> Syntax | None:
    """How the holes of a text are probably written; None where there are none."""
    if re.search(r"\{%.*?%\}|\{#.*?#\}", text, re.DOTALL):
        return "jinja"
    single = any(
        m["name"] and m["name"].isidentifier() for m in _FORMAT.finditer(text) if m["name"]
    )
    if single:
        return "format"
    double = re.search(r"(?<!\{)\{\{-?\s*[A-Za-z_][\w.]*\s*(\|[^{}]*)?-?\}\}(?!\})", text)
    if double:
        # `{{"a": 1}}` is an escaped brace; `{{ name }}` is a variable.
        return "jinja"
    if re.search(r"%\(\w+\)s", text):
        return "percent"
    if re.search(r"\$\{[a-z_]\w*\}|\$[a-z_]\w*", text):
        return "dollar"
    return None


def split(bits: Bits, syntax: Syntax, resolve: Resolve) -> Bits:
    """Bits with the placeholders of their literals made into slots.

    Literals next to each other are read one by one: a placeholder that spans two is left as text.
    Slots that are there already (of an f-string that makes a format string) stay.
    """
    out: list[Bit] = []
    for bit in bits:
        if isinstance(bit, Lit):
            out += _build(bit, list(_marks(bit.value, syntax)), resolve)
        else:
            out.append(bit)
    return tuple(out)


def names(bits: Bits, syntax: Syntax) -> list[str]:
    """Names of the placeholders, in order."""
    return [
        m.name
        for b in bits
        if isinstance(b, Lit)
        for m in _marks(b.value, syntax)
        if m.text is None and not m.close and m.name
    ]


def _build(lit: Lit, marks: list[_Mark], resolve: Resolve) -> list[Bit]:
    stack: list[tuple[_Mark, list[Bit]]] = []
    out: list[Bit] = []
    at = 0

    def text(start: int, stop: int) -> None:
        if stop > start:
            out.append(lit.part(start, stop))

    for mark in marks:
        text(at, mark.start)
        at = mark.end
        if mark.text is not None:
            if mark.text:
                piece = lit.part(mark.start, mark.end)
                out.append(Lit(mark.text, piece.where, _spread(mark.text, piece)))
        elif mark.open:
            stack.append((mark, out))
            out = []
        elif mark.close:
            if stack:
                head, outer = stack.pop()
                outer.append(_section(lit, head, mark.end, out, resolve))
                out = outer
        elif not mark.turn:
            out.append(_slot(lit, mark, resolve))
    text(at, len(lit.value))
    while stack:  # a section that never closes
        head, outer = stack.pop()
        outer.append(_section(lit, head, len(lit.value), out, resolve))
        out = outer
    return out


def _spread(value: str, piece: Lit) -> tuple[int, ...] | None:
    """Offsets for a text that is shorter than its source: all of it is one unit."""
    if piece.where is None or len(value) == piece.where.end - piece.where.start:
        return None
    return (piece.where.start,) * len(value)


def _slot(lit: Lit, mark: _Mark, resolve: Resolve) -> Slot:
    facts = join([resolve(n) for n in mark.reads or (mark.name,)]) if mark.name else Facts()
    if "sort" in mark.filters or "dictsort" in mark.filters:
        facts = facts.minus("set_order", "listing")
    return Slot(
        lit.value[mark.start : mark.end],
        mark.name,
        facts.reading(*mark.reads),
        lit.part(mark.start, mark.end).where,
        field=mark.name,
    )


def _section(lit: Lit, head: _Mark, end: int, inner: list[Bit], resolve: Resolve) -> Slot:
    test = join([resolve(n) for n in head.reads]) if head.reads else fact("build", "constant")
    inside = join(b.facts for b in inner if isinstance(b, Slot))
    where = lit.part(head.start, end).where
    facts = join([test, inside]) if any(isinstance(b, Slot) for b in inner) else test
    return Slot(
        lit.value[head.start : head.end],
        head.name,
        facts.plus("loop" if head.open == "loop" else "conditional").reading(*head.reads),
        where,
        tuple(inner),
        field=head.name,
    )


def _marks(text: str, syntax: Syntax) -> Iterator[_Mark]:
    if syntax == "format":
        yield from _format(text)
    elif syntax == "percent":
        yield from _percent(text)
    elif syntax == "dollar":
        for m in _DOLLAR.finditer(text):
            if m[0] == "$$":
                yield _Mark(m.start(), m.end(), text="$")
            else:
                yield _Mark(m.start(), m.end(), name=m["name"] or m["braced"])
    elif syntax == "jinja":
        yield from _jinja(text)
    else:
        yield from _mustache(text)


def _format(text: str) -> Iterator[_Mark]:
    count = 0
    for m in _FORMAT.finditer(text):
        if m[0] in ("{{", "}}"):
            yield _Mark(m.start(), m.end(), text=m[0][0])
            continue
        name = m["name"] or ""
        if not name:
            name, count = str(count), count + 1
        elif not (name.isidentifier() or name.isdigit()):
            continue
        yield _Mark(m.start(), m.end(), name=name)


def _percent(text: str) -> Iterator[_Mark]:
    count = 0
    for m in _PERCENT.finditer(text):
        if m[0] == "%%":
            yield _Mark(m.start(), m.end(), text="%")
        elif m["name"]:
            yield _Mark(m.start(), m.end(), name=m["name"])
        else:
            yield _Mark(m.start(), m.end(), name=str(count))
            count += 1


def _jinja(text: str) -> Iterator[_Mark]:
    bound: list[set[str]] = []
    for m in _JINJA.finditer(text):
        if m["tag"] is not None:
            yield from _tag(m, m["tag"].strip(), bound)
        elif m["expr"] is not None:
            reads = _reads(m["expr"], bound)
            filters = tuple(re.findall(r"\|\s*(\w+)", m["expr"]))
            name = reads[0] if reads else m["expr"].strip()
            yield _Mark(m.start(), m.end(), name=name, reads=reads, filters=filters)
        elif "raw" in m[0][:10] and m[0].startswith("{%"):
            inner = re.sub(r"^\{%.*?%\}|\{%[^%]*%\}$", "", m[0], flags=re.DOTALL)
            yield _Mark(m.start(), m.end(), text=inner)
        else:
            yield _Mark(m.start(), m.end(), text="")


def _tag(m: re.Match[str], tag: str, bound: list[set[str]]) -> Iterator[_Mark]:
    word, _, rest = tag.partition(" ")
    if word == "for":
        left, _, right = rest.partition(" in ")
        reads = _reads(right, bound)
        bound.append(set(re.findall(r"\w+", left)))
        yield _Mark(
            m.start(), m.end(), name=reads[0] if reads else right.strip(), open="loop", reads=reads
        )
    elif word == "if":
        bound.append(set())
        reads = _reads(rest, bound)
        yield _Mark(
            m.start(), m.end(), name=reads[0] if reads else rest.strip(), open="if", reads=reads
        )
    elif word in ("endfor", "endif"):
        if bound:
            bound.pop()
        yield _Mark(m.start(), m.end(), close=True)
    else:
        yield _Mark(m.start(), m.end(), turn=True)


def _reads(expr: str, bound: list[set[str]]) -> tuple[str, ...]:
    plain = re.sub(r"\"[^\"]*\"|'[^']*'", "''", expr)
    plain = re.sub(r"\|\s*\w+", "", plain)
    local = set().union(*bound) if bound else set()
    found = []
    for m in _NAME.finditer(plain):
        root = m[0].split(".")[0]
        if root not in _WORDS and root not in local:
            found.append(m[0])
    return tuple(dict.fromkeys(found))


def _mustache(text: str) -> Iterator[_Mark]:
    for m in _MUSTACHE.finditer(text):
        name = m["name"] or m["raw"]
        if name is None:
            yield _Mark(m.start(), m.end(), text="")
        elif m["kind"] in ("#", "^"):
            yield _Mark(m.start(), m.end(), name=name, open="if", reads=(name,))
        elif m["kind"] == "/":
            yield _Mark(m.start(), m.end(), close=True)
        else:
            yield _Mark(m.start(), m.end(), name=name)


__all__ = ["Resolve", "Syntax", "Where", "guess_syntax", "names", "split"]
