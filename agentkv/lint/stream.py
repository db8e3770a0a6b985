"""Where the command writes: standard output or a file, and what can be shown there."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def emit(text: str, file: Path | None, *, for_people: bool) -> None:
    """To `file` as UTF-8, or to standard output. Raises OSError for a file that cannot be written."""
    if file is not None:
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    else:
        write(text, for_people=for_people)


def write(text: str, *, for_people: bool) -> None:
    """To standard output: what the terminal can show for people, UTF-8 for programs. Names of files
    that are no Unicode are escaped, never an error."""
    encoding = (sys.stdout.encoding or "utf-8") if for_people else "utf-8"
    data = text.encode(encoding, "backslashreplace")
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode(encoding))
        return
    sys.stdout.flush()
    buffer.write(data)
    buffer.flush()


def say(text: str) -> None:
    """Progress and errors, on standard error."""
    print(text, file=sys.stderr)


def colour(file: Path | None) -> bool:
    """Whether a report is coloured: on a terminal, unless NO_COLOR is set; FORCE_COLOR insists."""
    if file is not None or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def blocks(file: Path | None) -> bool:
    """Whether block characters can be written."""
    if file is not None:
        return True
    try:
        "█▁░".encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width() -> int:
    """Columns of the terminal."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns
