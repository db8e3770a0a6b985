"""Where the commands write: colour, width, and what can be shown there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

_LEAST = 40


def console(*, width: int | None = None) -> Console:
    """For data on standard output. NO_COLOR, FORCE_COLOR and COLUMNS hold. What the terminal cannot
    show is escaped, never an error."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    # Rich keeps bold and dim under NO_COLOR; the other commands print plain text then.
    plain = bool(os.environ.get("NO_COLOR"))
    out = Console(
        file=sys.stdout,
        force_terminal=False if plain else None,
        color_system=None if plain else "auto",
        highlight=False,
        emoji=False,
        markup=False,
        width=width,
    )
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


def write_json(value: Any, file: Path | None = None) -> None:
    """As indented JSON, UTF-8, to `file` or standard output. Raises OSError."""
    write(json.dumps(value, indent=2, ensure_ascii=False) + "\n", file)


def write(text: str, file: Path | None = None) -> None:
    """To `file` or standard output, as UTF-8 whatever the terminal speaks. A lone surrogate becomes
    an escape, which JSON reads back as what it was. Raises OSError."""
    data = text.encode("utf-8", "backslashreplace")
    if file is not None:
        file.write_bytes(data)
        return
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode())
        return
    sys.stdout.flush()
    buffer.write(data)
    buffer.flush()


def say(text: str) -> None:
    """Progress and remarks, on standard error."""
    print(text.encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
