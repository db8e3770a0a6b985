"""Calls made by hand, for tests of what comes behind the readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkv.trace.call import Call, Part, Piece, Where

Said = tuple[str, str]
"""Role and text."""


def call(
    *talk: Said,
    system: str | None = "You answer questions about ships, in one sentence.",
    tools: Sequence[tuple[str, str]] = (),
    answer: str | None = None,
    number: int = 0,
    **fields: Any,
) -> Call:
    """A chat call: tools, a system message, then `talk`."""
    parts: list[Part] = []
    if tools:
        pieces = tuple(Piece("tool", text, name) for name, text in tools)
        parts.append(Part("tools", "tools", None, pieces))
    said = ([("system", system)] if system is not None else []) + list(talk)
    last = max((i for i, (role, _) in enumerate(said) if role == "user"), default=-1)
    for i, (role, text) in enumerate(said):
        kind = "instructions" if role == "system" else "question" if i == last else "history"
        parts.append(Part(f"messages[{i}]", kind, role, (Piece("text", text),)))
    return Call(
        Where("log.jsonl", number + 1),
        model=fields.pop("model", "m"),
        parts=tuple(parts),
        answer=(Piece("text", answer),) if answer is not None else (),
        **fields,
    )


def chat(
    turns: int, *, system: str = "You answer questions about ships.", name: str = "a"
) -> list[Call]:
    """A conversation that only grows; its answers are logged."""
    out: list[Call] = []
    talk: list[Said] = []
    for turn in range(turns):
        talk.append(("user", f"{name}: what is the draught of ship number {turn}, please?"))
        reply = f"{name}: ship number {turn} draws {turn + 3} metres of water when it is loaded."
        out.append(call(*talk, system=system, answer=reply, number=turn))
        talk.append(("assistant", reply))
    return out
