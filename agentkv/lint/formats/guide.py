"""AGENTS.md, CLAUDE.md, SKILL.md and the like: fixed texts, in which only a clock matters.

What looks like a template in them is an example, so nothing but values of the day is looked for.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from agentkv.lint.formats import _comments, _shapes
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._messages import Item, parts
from agentkv.lint.formats._region import Region
from agentkv.lint.formats.base import Project
from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Document, Hole, Template

_NAMES = re.compile(
    r"^(?:agents|claude|gemini|skill|copilot-instructions|\.?cursorrules|\.?windsurfrules|\.?clinerules|conventions\.agent)(?:\.local)?(?:\.mdc?|\.txt)?$",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(?P<f>```+|~~~+)[^\n]*\n.*?^(?P=f)[ \t]*$", re.MULTILINE | re.DOTALL)


class Guide:
    """A fixed system text for an agent."""

    name = "guide"

    def claims(self, path: str, head: str) -> float:
        pure = PurePath(path)
        if _NAMES.match(pure.name) and pure.suffix.lower() in (".md", ".mdc", ".txt", ""):
            return 0.9
        return 0.9 if pure.suffix.lower() == ".mdc" else 0.0

    def read(self, source: Source, project: Project) -> Document:
        items: list[Item] = []
        fences = [Slice(m.start(), m.end()) for m in _FENCE.finditer(source.text)]
        for item in _shapes.read(Region.whole(source), "written into the text"):
            if (
                isinstance(item, Hole)
                and item.slice is not None
                and any(item.slice.within(f) for f in fences)
            ):
                items.append(Region.whole(source).piece(item.slice.start, item.slice.end))
            elif isinstance(item, Hole) and "date" in item.traits:
                # "Last checked 2026-01-01" does not change by itself.
                items.append(
                    Region.whole(source).piece(item.slice.start, item.slice.end)
                    if item.slice
                    else item
                )
            else:
                items.append(item)
        template = Template(
            format=self.name,
            name=PurePath(source.path).name,
            parts=parts(items, "system"),
            slice=Slice(0, len(source.text)),
            followed=True,
            syntax="none",
        )
        comments = _comments.suppressions(source, _comments.HTML)
        return finish(source, self.name, [template], suppressions=comments)


FORMATS = [Guide()]
