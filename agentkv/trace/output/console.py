"""The terminal that a report is written to: colour, width, and what it can show."""

from __future__ import annotations

import io
import sys
from typing import IO

from rich.console import Console

_LEAST = 40


def console(file: IO[str] | None = None, *, width: int | None = None) -> Console:
    """For data on standard output (or `file`). NO_COLOR and FORCE_COLOR hold, as does COLUMNS; a
    line is never cut because nobody knows how wide the reader of a pipe is."""
    out = Console(file=file or sys.stdout, highlight=False, emoji=False, markup=False, width=width)
    if out.width < _LEAST:
        out.width = _LEAST
    return out


def blocks(out: Console) -> bool:
    """Whether block characters can be written there."""
    try:
        "█░▒·→…".encode(out.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def plain(width: int = 100) -> tuple[Console, io.StringIO]:
    """A console that writes text without colour into a string."""
    to = io.StringIO()
    return Console(
        file=to, width=width, color_system=None, highlight=False, emoji=False, markup=False
    ), to
