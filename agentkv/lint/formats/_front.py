"""YAML front matter between `---` lines."""

from __future__ import annotations

import re

from agentkv.lint.formats import _yaml
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.source import BOM

_OPEN = re.compile(r"---[ \t]*\r?\n")
_CLOSE = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


def split(text: str) -> tuple[Node | None, int]:
    """The front matter and where the body begins. None where there is none, or where it cannot be
    read (the body begins behind it all the same)."""
    start = 1 if text.startswith(BOM) else 0
    opening = _OPEN.match(text, start)
    if opening is None:
        return None, start
    closing = _CLOSE.search(text, opening.end())
    if closing is None:
        return None, start
    try:
        node = _yaml.parse(text, opening.end(), closing.start())
    except TreeError:
        node = None
    return node, closing.end()
