"""Strings as the reader sees them: literal runs and slots, each with its place in the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agentkv.lint.formats.python.facts import FIXED, Facts, Where, join
from agentkv.lint.source import Slice
from agentkv.lint.template import Hole, Piece, Text


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter whose value only callers know: `module:Class.function` and its name."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class Lit:
    """Literal text. `offsets[i]` is where character i begins (None: one for one from `where`)."""

    value: str
    where: Where | None = None
    offsets: tuple[int, ...] | None = None

    def part(self, start: int, stop: int) -> Lit:
        """The characters `[start, stop)` with their place."""
        if self.where is None or (start == 0 and stop == len(self.value)):
            return self if stop - start == len(self.value) else Lit(self.value[start:stop])
        first, last = self.at(start), self.at(stop)
        where = Where(self.where.module, first, last)
        if self.offsets is None:
            return Lit(self.value[start:stop], where)
        return Lit(self.value[start:stop], where, self.offsets[start:stop])

    def at(self, index: int) -> int:
        """Source offset of a character (of the end, for the index behind the last)."""
        assert self.where is not None
        if index >= len(self.value):
            return self.where.end
        return self.where.start + index if self.offsets is None else self.offsets[index]


@dataclass(frozen=True, slots=True)
class Slot:
    """Another text goes in here. `inner` is what is known of it."""

    expr: str
    name: str
    facts: Facts
    where: Where | None = None
    inner: tuple[Lit | Slot, ...] = ()
    param: Param | None = None
    field: str | None = None
    """The name of a field that a later `format` fills in."""


Bit = Lit | Slot
Bits = tuple[Bit, ...]


def facts_of(bits: Iterable[Bit]) -> Facts:
    return join((b.facts if isinstance(b, Slot) else FIXED) for b in bits)


def text_of(bits: Iterable[Bit]) -> str:
    """The literal text in bits, sections included."""
    return "".join(b.value if isinstance(b, Lit) else text_of(b.inner) for b in bits)


def as_text(value: object) -> str | None:
    """The text of a value that is nothing but literal text."""
    bits = getattr(value, "bits", None)
    if bits is None or not all(isinstance(b, Lit) for b in bits):
        return None
    return "".join(b.value for b in bits)


def size(bits: Iterable[Bit]) -> int:
    return sum(len(b.value) if isinstance(b, Lit) else size(b.inner) for b in bits)


def slots(bits: Iterable[Bit]) -> list[Slot]:
    """Every slot, sections' inner ones too."""
    found: list[Slot] = []
    for b in bits:
        if isinstance(b, Slot):
            found += [b, *slots(b.inner)]
    return found


def change(bits: Bits, how: Callable[[Slot], Bits]) -> Bits:
    """Bits with every slot replaced by what `how` gives for it (inner ones first)."""
    out: list[Bit] = []
    for b in bits:
        if isinstance(b, Lit):
            out.append(b)
        else:
            out += how(replace(b, inner=change(b.inner, how)) if b.inner else b)
    return tuple(out)


def fill(slot: Slot, value: Bits, facts: Facts) -> Bits:
    """What stands in a slot once its value is known.

    A text that is fixed stays one slot with the text inside, in the slot's place, so that it counts
    and can be moved as a whole. Text with slots of its own is spliced in.
    """
    if any(isinstance(b, Lit) and b.value for b in value):
        if all(isinstance(b, Lit) for b in value) or slot.where is None:
            if slot.where is None:
                return value
            return (replace(slot, facts=facts, inner=tight(value), param=None),)
        return value
    if len(value) == 1 and isinstance(value[0], Slot):
        one = value[0]
        return (
            replace(
                slot,
                name=one.name if one.param or not slot.name else slot.name,
                facts=facts.reading(*slot.facts.reads),
                inner=one.inner,
                param=one.param,
            ),
        )
    if value:
        return value if slot.where is None else (replace(slot, facts=facts, inner=value),)
    return (replace(slot, facts=facts, param=None),)


def tight(bits: Iterable[Bit]) -> Bits:
    """Without empty literals, and with neighbours of one string literal as one."""
    out: list[Bit] = []
    for b in bits:
        last = out[-1] if out else None
        if isinstance(b, Slot):
            out.append(b)
        elif b.value and isinstance(last, Lit) and _touch(last, b):
            out[-1] = _glue(last, b)
        elif b.value:
            out.append(b)
    return tuple(out)


def _touch(a: Lit, b: Lit) -> bool:
    if a.where is None or b.where is None:
        return a.where is b.where
    return a.where.module == b.where.module and a.where.end == b.where.start


def _glue(a: Lit, b: Lit) -> Lit:
    if a.where is None or b.where is None:
        return Lit(a.value + b.value)
    where = Where(a.where.module, a.where.start, b.where.end)
    if len(a.value) + len(b.value) == where.end - where.start and not (a.offsets or b.offsets):
        return Lit(a.value + b.value, where)
    offsets = tuple(x.at(i) for x in (a, b) for i in range(len(x.value)))
    return Lit(a.value + b.value, where, offsets)


def pieces(bits: Iterable[Bit], module: str) -> tuple[Piece, ...]:
    """The pieces that rules see, with slices where the text is in `module`."""
    return tuple(_piece(b, module) for b in tight(bits))


def _piece(bit: Bit, module: str) -> Piece:
    place = _slice(bit.where, module)
    if isinstance(bit, Lit):
        return Text(bit.value, place)
    return Hole(
        expr=bit.expr,
        name=bit.name,
        level=bit.facts.level,
        slice=place,
        traits=bit.facts.traits,
        why=bit.facts.why,
        known=bit.facts.known,
        reads=bit.facts.reads,
        defined_at=_slice(bit.facts.made, module),
        inner=pieces(bit.inner, module),
    )


def _slice(where: Where | None, module: str) -> Slice | None:
    if where is None or where.module != module:
        return None
    return Slice(where.start, where.end)
