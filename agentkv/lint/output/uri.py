"""Paths as the readers of reports want them: relative to where the program ran, with `/`."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from agentkv.lint.result import Reported


def here(path: str) -> str:
    """The path below the current folder, or the absolute one."""
    if path == "-":
        return "stdin"
    absolute = os.path.abspath(path)
    try:
        return Path(absolute).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(absolute).as_posix()


def uri(path: str) -> str:
    """A relative reference, or `file://` for what is not below the current folder."""
    name = here(path)
    quoted = quote(name, errors="surrogateescape")
    return f"file://{quoted}" if name.startswith("/") else quoted


def fingerprint(finding: Reported, seen: dict[str, int]) -> str:
    """Names a finding across runs: code, path and slot, and a number for twins."""
    from hashlib import blake2b

    text = "\0".join((finding.code, here(finding.path), finding.slot or finding.excerpt.strip()))
    seen[text] = seen.get(text, 0) + 1
    return blake2b(f"{text}\0{seen[text]}".encode("utf-8", "replace"), digest_size=16).hexdigest()
