"""Rates as bars of a terminal, on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from agentkv.trace.output.console import blocks
from agentkv.trace.output.words import percent


@dataclass(frozen=True, slots=True)
class Bar:
    """`share` of all prompt tokens; `lost`: more that could have been served. `other`: a number
    of another source, drawn in another way so that nobody adds the two up."""

    name: str
    share: float
    said: str
    lost: float = 0.0
    other: bool = False


def draw(bars: Sequence[Bar], out: Console) -> None:
    """One line a bar: name, bar, per cent, and what it is where there is room."""
    wide = max((len(b.name) for b in bars), default=0)
    numbers = [percent(b.share) for b in bars]
    number = max((len(n) for n in numbers), default=0)
    room = out.width - wide - number - 6
    # The words take what is left beside a bar of a readable size, and are cut where that is little.
    words = room >= 52
    size = min(48, max(28, room - max((len(b.said) for b in bars), default=0) - 2))
    size = size if words else max(12, min(48, room))
    full, lost, rest, other = ("█", "▒", "·", "▄") if blocks(out) else ("#", "-", ".", "=")
    for bar, text in zip(bars, numbers, strict=True):
        have = round(bar.share * size)
        gone = min(round((bar.share + bar.lost) * size), size) - have
        line = Text(f"  {bar.name:>{wide}}  ")
        line.append((other if bar.other else full) * have, "cyan" if bar.other else "blue")
        line.append(lost * gone, "yellow").append(rest * (size - have - gone), "dim")
        line.append(f"  {text:>{number}}", "bold")
        if words:
            line.append(f"  {bar.said}", "dim")
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
