"""Plain text with `{x}`, `{{x}}`, `{% %}` or `$x`: prompts kept as `.txt` and `.md` files."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Literal

from agentkv.lint.formats import _comments, _handlebars
from agentkv.lint.formats._beside import evidence as evidence_beside
from agentkv.lint.formats._braces import dollar_holes, format_holes, read_dollar, read_format
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._evidence import evidence, in_prompt_folder, says
from agentkv.lint.formats._expression import Names
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, parts
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._roles import template_role
from agentkv.lint.formats.base import Project
from agentkv.lint.formats.jinja import loader
from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Document, Template

Syntax = Literal["format", "dollar", "jinja", "mustache", "none"]

_SUFFIXES = frozenset(
    {".txt", ".md", ".prompt", ".tmpl", ".tpl", ".markdown", ".mustache", ".hbs", ".handlebars"}
)
_LEFT_OUT = re.compile(
    r"^(?:cmakelists|robots|requirements.*|constraints.*|skprompt|manifest|todo|notes)\.",
    re.IGNORECASE,
)
_DOCS = re.compile(
    r"(?:^|[\\/])(?:docs?|man|relnotes|release[_-]?notes|licen[cs]es)[\\/]", re.IGNORECASE
)
_MUSTACHE = re.compile(
    r"(?<!\{)\{\{(?!\{)\s*[#/^&>]?\s*[\w.$]+\s*\}\}(?!\})|\{\{\{\s*[\w.]+\s*\}\}\}"
)
_JINJA = re.compile(r"\{%-?\s*\w|\{#|\{\{[^{}]*(?:\||\()[^{}]*\}\}")
_HANDLEBARS = re.compile(r"\{\{[#/]\w")


def syntax_of(text: str) -> Syntax:
    """The syntax of a text's holes. Doubled braces beside single ones are escapes of `str.format`;
    on their own they are holes."""
    if re.search(r"\{%-?\s*\w+[^{}]*%\}", text) or re.search(r"\{\{[^{}]*\|\s*\w+[^{}]*\}\}", text):
        return "jinja"
    dollars = dollar_holes(text)
    single = [n for n in format_holes(text) if f"${{{n}}}" not in text]
    double = _MUSTACHE.search(text) is not None
    if double and (not single or _HANDLEBARS.search(text)):
        return "mustache"
    if single:
        return "format"
    if _JINJA.search(text):
        return "jinja"
    return "dollar" if dollars else "none"


def read_text(
    region: Region,
    names: Names,
    syntax: Syntax,
    load: object = None,
    *,
    handlebars: bool = False,
) -> list[Item]:
    """Items of a text in a syntax; `handlebars`: `\\{{x}}` is text. Raises TemplateError."""
    if syntax == "jinja":
        return read_jinja(region, names, load=load if callable(load) else None).items
    if syntax == "mustache":
        handlebars = handlebars or _HANDLEBARS.search(region.text) is not None
        return _handlebars.read(region, names, "handlebars" if handlebars else "mustache")
    if syntax == "dollar":
        return read_dollar(region, names)
    if syntax == "format":
        return read_format(region, names)
    return [region.piece(0, len(region.text))] if region.text else []


class Plain:
    """One file, one prompt."""

    name = "text"

    def claims(self, path: str, head: str) -> float:
        pure = PurePath(path)
        suffix = pure.suffix.lower()
        if suffix not in _SUFFIXES or _LEFT_OUT.match(pure.name):
            return 0.0
        if in_prompt_folder(path):
            return min(0.6, evidence(path, head))
        # Documentation quotes prompts too; a prompt says what it is at its beginning.
        if _DOCS.search(path) or not says(head[:600]):
            return 0.0
        found = evidence(path, head)
        if found < 0.7 or syntax_of(head) == "none":
            return 0.3 if found >= 0.5 and says(head[:300]) else 0.0
        return 0.6

    def read(self, source: Source, project: Project) -> Document:
        syntax = syntax_of(source.text)
        names = Names(project.stability, evidence_beside(source, project))
        notes = _comments.suppressions(
            source, _comments.JINJA, _comments.HTML, _comments.HANDLEBARS, _comments.HASH
        )
        try:
            items = read_text(
                Region.whole(source),
                names,
                syntax,
                loader(source, project),
                handlebars=PurePath(source.path).suffix.lower() in (".hbs", ".handlebars"),
            )
        except TemplateError as error:
            line = source.position(error.offset).line
            return Document(
                format=self.name, skipped=f"not a {syntax} template: {error} (line {line})"
            )
        except RecursionError:
            return Document(format=self.name, skipped="nested too deeply")
        found = parts(items, template_role(source.path, source.text))
        if not found:
            return Document(format=self.name, suppressions=notes)
        template = Template(
            format=self.name,
            name=PurePath(source.path).name,
            parts=found,
            slice=Slice(0, len(source.text)),
            syntax=syntax,
        )
        return finish(source, self.name, [template], suppressions=notes)


FORMATS = [Plain()]
