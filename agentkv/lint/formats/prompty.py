"""Prompty: front matter, then messages under `system:` and `user:` lines."""

from __future__ import annotations

from pathlib import PurePath

from agentkv.lint.formats import _comments, _front, _handlebars
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._expression import Facts, Names
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, parts
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._roles import by_lines
from agentkv.lint.formats._samples import judged
from agentkv.lint.formats._tree import Node
from agentkv.lint.formats.base import Project
from agentkv.lint.formats.jinja import loader
from agentkv.lint.names import guess
from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Document, Template


class Prompty:
    """A `.prompty` file, version 1 or 2."""

    name = "prompty"

    def claims(self, path: str, head: str) -> float:
        return 1.0 if PurePath(path).suffix.lower() == ".prompty" else 0.0

    def read(self, source: Source, project: Project) -> Document:
        front, at = _front.split(source.text)
        mustache = front is not None and _engine(front) == "mustache"
        threads = _threads(front)
        names = Names(project.stability, _evidence(front, threads))
        region = Region(source.text[at:], at)
        try:
            items: list[Item] = (
                _handlebars.read(region, names, "mustache")
                if mustache
                else read_jinja(region, names, load=loader(source, project)).items
            )
        except TemplateError as error:
            line = source.position(at + error.offset).line
            return Document(format=self.name, skipped=f"not a template: {error} (line {line})")
        except RecursionError:
            return Document(format=self.name, skipped="nested too deeply")
        found = parts(by_lines(region, items), "system" if len(items) else "unknown")
        used = {r for p in found for h in _comments.holes(p.pieces) for r in h.reads}
        title = front.text("name") if front is not None else None
        template = Template(
            format=self.name,
            name=title or PurePath(source.path).stem,
            parts=found,
            slice=Slice(at, len(source.text)),
            followed=bool(threads - used),
            syntax="mustache" if mustache else "jinja",
        )
        notes = _comments.suppressions(
            source, _comments.JINJA, _comments.HASH, _comments.HANDLEBARS
        )
        return finish(source, self.name, [template], suppressions=notes)


def _engine(front: Node) -> str:
    template = front.get("template")
    if template is None:
        return "jinja2"
    if template.kind == "map":
        form = template.get("format")
        kind = template.text("format", "type", "kind")
        return (
            kind or (form.text("kind", "type") if form is not None else None) or "jinja2"
        ).lower()
    return template.value.lower()


def _inputs(front: Node | None) -> list[tuple[str, Node]]:
    """Name and description of each input, in both versions."""
    inputs = front.get("inputs", "inputSchema") if front is not None else None
    if inputs is None:
        return []
    if inputs.kind == "map" and (inner := inputs.get("properties")) is not None:
        inputs = inner
    if inputs.kind == "map":
        return [(name, node) for name, node, _ in inputs.pairs]
    return [(name, node) for node in inputs.items if (name := node.text("name")) is not None]


def _threads(front: Node | None) -> set[str]:
    return {
        name
        for name, node in _inputs(front)
        if (node.text("kind", "type") or "").lower() == "thread"
    }


def _evidence(front: Node | None, threads: set[str]) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    samples: dict[str, str] = {}
    for name, node in _inputs(front):
        value = node.text("sample", "example", "default") if node.kind == "map" else node.value
        if value:
            samples[name] = value
    sample = front.get("sample") if front is not None else None
    if sample is not None:
        samples |= {k: v.value for k, v, _ in sample.pairs if v.kind in ("text", "other")}
    for name, value in samples.items():
        if value.startswith(("${env:", "${file:")):
            found[name] = Facts(
                "deploy", guess(name)[1], "from the environment", True, name, (name,)
            )
        else:
            found[name] = judged(name, [value], 1, "samples")
    for name in threads:
        found[name] = Facts("turn", frozenset({"history"}), "a thread", True, name, (name,))
    return found


FORMATS = [Prompty()]
