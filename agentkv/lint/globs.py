"""Globs of paths, as in .gitignore: `*` within a folder, `**` across, a bare name at any depth."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath


def matches(glob: str, path: str) -> bool:
    """Whether `path` (below the root, any separator) or a folder above it is what `glob` means."""
    return _pattern(glob).match(PurePath(path).as_posix()) is not None


@lru_cache(maxsize=512)
def _pattern(glob: str) -> re.Pattern[str]:
    text = glob.replace("\\", "/").removeprefix("./").rstrip("/")
    anywhere = "/" not in text
    text = text.removeprefix("/")
    out: list[str] = []
    i = 0
    while i < len(text):
        if text.startswith("**/", i):
            out.append("(?:.*/)?")
            i += 3
        elif text.startswith("**", i):
            out.append(".*")
            i += 2
        elif text[i] == "*":
            out.append("[^/]*")
            i += 1
        elif text[i] == "?":
            out.append("[^/]")
            i += 1
        elif text[i] == "[" and (end := text.find("]", i + 2)) > 0:
            inner = text[i + 1 : end].replace("\\", "\\\\")
            out.append("[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]")
            i = end + 1
        else:
            out.append(re.escape(text[i]))
            i += 1
    head = "(?:.*/)?" if anywhere else ""
    return re.compile(f"{head}{''.join(out)}(?:/.*)?\\Z")
