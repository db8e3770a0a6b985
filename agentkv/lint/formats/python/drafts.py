"""Prompts and requests on their way to a document, while parameters are still open."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentkv.lint.formats.python.bits import Bit, Bits, Lit
from agentkv.lint.formats.python.facts import Facts, Where
from agentkv.lint.formats.python.values import Use
from agentkv.lint.template import HistoryOp, Role, ToolsUse


@dataclass(frozen=True, slots=True)
class PartDraft:
    role: Role
    bits: Bits
    where: Where | None = None
    placeholder: bool = False
    marker: Where | None = None
    blocks: int = 1
    marked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingDraft:
    name: str
    where: Where
    facts: Facts
    value: str | None = None


@dataclass(slots=True)
class RequestDraft:
    """A call of a model."""

    api: str
    where: Where
    tools: ToolsUse | None = None
    settings: tuple[SettingDraft, ...] = ()
    ops: tuple[tuple[Where, HistoryOp], ...] = ()
    markers: tuple[Where, ...] = ()
    ttls: tuple[str, ...] = ()
    fan_out: bool = False
    in_loop: bool = False
    model: str | None = None


@dataclass(slots=True)
class Draft:
    """A prompt. `evidence`: how it was found; a `shape` gives way to any other for one text."""

    parts: tuple[PartDraft, ...]
    where: Where
    owner: str
    name: str = ""
    syntax: str = "python"
    followed: bool = False
    evidence: str = "sink"
    request: RequestDraft | None = None
    use: Use | None = None
    within: str = ""
    history: bool = field(default=False)
    """Messages of the caller are in it or behind it."""


def literals(bits: Bits) -> list[Lit]:
    """Every literal in bits that has a place."""
    found: list[Lit] = []
    todo: list[Bit] = list(bits)
    while todo:
        b = todo.pop(0)
        if isinstance(b, Lit):
            if b.where is not None and b.value:
                found.append(b)
        else:
            todo = [*b.inner, *todo]
    return found


def all_literals(draft: Draft) -> list[Lit]:
    return [lit for part in draft.parts for lit in literals(part.bits)]
