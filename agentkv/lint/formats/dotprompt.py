"""Dotprompt (Genkit, Firebase): front matter, Handlebars, `{{role "system"}}`, `{{history}}`."""

from __future__ import annotations

import re
from pathlib import PurePath

from agentkv.lint.formats import _comments, _front, _handlebars
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._expression import Facts, Names
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import parts
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._samples import judged
from agentkv.lint.formats._tree import Node
from agentkv.lint.formats.base import Project
from agentkv.lint.source import BOM, Slice, Source
from agentkv.lint.template import Document, Template

_MARKS = re.compile(r"\{\{\s*(?:role\s+[\"']|history\b|media\s+url|section\s+[\"'])")
_KEYS = re.compile(
    r"^(?:model|input|output|config|tools|variant|ext|toolDefs|maxTurns):", re.MULTILINE
)


class Dotprompt:
    """A `.prompt` file."""

    name = "dotprompt"

    def claims(self, path: str, head: str) -> float:
        if PurePath(path).suffix.lower() != ".prompt":
            return 0.0
        if _MARKS.search(head):
            return 1.0
        return 0.9 if head.lstrip(BOM).startswith("---") and _KEYS.search(head) else 0.0

    def read(self, source: Source, project: Project) -> Document:
        front, at = _front.split(source.text)
        region = Region(source.text[at:], at)
        names = Names(project.stability, _evidence(front))
        try:
            items = _handlebars.read(region, names, "dotprompt")
        except TemplateError as error:
            line = source.position(at + error.offset).line
            return Document(format=self.name, skipped=f"not a template: {error} (line {line})")
        template = Template(
            format=self.name,
            name=PurePath(source.path).stem,
            parts=parts(items, "user"),
            slice=Slice(at, len(source.text)),
            syntax="mustache",
        )
        notes = _comments.suppressions(source, _comments.HANDLEBARS, _comments.HASH)
        return finish(source, self.name, [template], suppressions=notes)


def _evidence(front: Node | None) -> dict[str, Facts]:
    default = front.at("input", "default") if front is not None else None
    if default is None:
        return {}
    return {
        name: judged(name, [node.value], 1, "defaults")
        for name, node, _ in default.pairs
        if node.kind in ("text", "other") and node.value
    }


FORMATS = [Dotprompt()]
