"""Semantic Kernel: `skprompt.txt` beside `config.json`, and prompts in YAML."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from agentkv.lint.formats import _comments, _file, _handlebars, _json
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._expression import Facts, Names
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, parts
from agentkv.lint.formats._others import others
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._roles import by_tags
from agentkv.lint.formats._samples import judged
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.formats.base import Project
from agentkv.lint.source import Slice, Source, SourceError
from agentkv.lint.template import Document, Template

_FORMAT = re.compile(
    r"^[\"']?template_format[\"']?\s*:\s*[\"']?(?P<kind>semantic-kernel|handlebars|liquid|jinja2)",
    re.MULTILINE,
)
_TEMPLATE = re.compile(r"^[\"']?template[\"']?\s*:", re.MULTILINE)
_SYNTAX = re.compile(r"\{\{\s*\$\w+\s*\}\}|\{\{\s*\w+\.\w+[^{}]*\}\}|<message\s+role\s*=")


class SemanticKernel:
    """One prompt function."""

    name = "semantic-kernel"

    def claims(self, path: str, head: str) -> float:
        pure = PurePath(path)
        if pure.name.lower() == "skprompt.txt":
            return 1.0
        suffix = _file.suffix(path)
        if suffix in _file.YAML and _TEMPLATE.search(head):
            if _FORMAT.search(head):
                return 0.95
            return (
                0.8
                if re.search(r"^[\"']?input_variables[\"']?\s*:", head, re.MULTILINE)
                and _SYNTAX.search(head)
                else 0.0
            )
        if suffix == ".txt" and re.search(r"\{\{\s*\$\w+\s*\}\}|<message\s+role\s*=\s*[\"']", head):
            return 0.75
        return 0.0

    def read(self, source: Source, project: Project) -> Document:
        names = Names(project.stability)
        name = PurePath(source.path).parent.name or PurePath(source.path).stem
        if _file.suffix(source.path) not in _file.YAML:
            comments = _comments.suppressions(
                source, _comments.HTML, _comments.HANDLEBARS, _comments.HASH
            )
            config = _config(source, project)
            if config is not None:
                names.evidence = _defaults(config)
                name = config.text("name") or name
            region, kind, where = (
                Region.whole(source),
                (config.text("template_format") if config is not None else None)
                or "semantic-kernel",
                Slice(0, len(source.text)),
            )
        else:
            comments = _comments.suppressions(source, _comments.HASH)
            root = _file.tree(source)
            if isinstance(root, str):
                return Document(format=self.name, skipped=root)
            node = root.get("template")
            if node is None or node.kind != "text":
                return Document(format=self.name, suppressions=comments)
            name = root.text("name") or PurePath(source.path).stem
            names.evidence = _defaults(root)
            region, kind, where = (
                node.region,
                root.text("template_format") or "semantic-kernel",
                node.slice,
            )
        try:
            items = read(region, names, kind)
        except TemplateError as error:
            return Document(format=self.name, skipped=f"not a {kind} template: {error}")
        except RecursionError:
            return Document(format=self.name, skipped="nested too deeply")
        template = Template(
            format=self.name,
            name=name,
            parts=parts(by_tags(region, items)),
            slice=where,
            writable=region.placed,
            syntax="jinja" if kind in ("liquid", "jinja2") else "mustache",
        )
        return finish(source, self.name, [template], suppressions=comments)


def read(region: Region, names: Names, kind: str) -> list[Item]:
    """Items of a text in one of Semantic Kernel's template formats."""
    if kind in ("liquid", "jinja2"):
        return read_jinja(region, names).items
    return _handlebars.read(
        region, names, "handlebars" if kind == "handlebars" else "semantic-kernel"
    )


def _config(source: Source, project: Project) -> Node | None:
    """The `config.json` beside a prompt, as it is now."""
    path = Path(source.path).parent / "config.json"
    kept = others(project, "semantic-kernel")
    kept[path] = None
    try:
        if path.is_file():
            root = _json.parse(Source.read(path).text)
            kept[path] = root if root.kind == "map" else None
    except (OSError, SourceError, TreeError, RecursionError):
        pass
    found: Node | None = kept[path]
    return found


def _defaults(root: Node) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    variables = root.get("input_variables") or root.at("input", "parameters")
    for one in variables.items if variables is not None else []:
        name, default = one.text("name"), one.text("default", "default_value", "defaultValue")
        if name and default:
            found[name] = judged(name, [default], 1, "defaults")
    return found


FORMATS = [SemanticKernel()]
