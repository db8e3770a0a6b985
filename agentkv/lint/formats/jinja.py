"""Jinja files that are prompts: `.j2`, `.jinja`, `.jinja2`, and text with Jinja in prompt folders."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from agentkv.lint.formats import _comments
from agentkv.lint.formats._beside import evidence as evidence_beside
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._evidence import evidence, in_prompt_folder
from agentkv.lint.formats._expression import Names
from agentkv.lint.formats._jinja import Load
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import parts
from agentkv.lint.formats._others import others
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._roles import template_role
from agentkv.lint.formats.base import Project
from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Document, Template

SUFFIXES = frozenset({".j2", ".jinja", ".jinja2", ".njk"})
_INNER = frozenset(
    {".txt", ".md", ".prompt", ".system", ".user", ".chat", ".tmpl", ".tpl", ".xml", ""}
)
"""`rules.md.j2` may be a prompt, `nginx.conf.j2` is none."""
_CODE = re.compile(
    r"\.(?:conf|cfg|ini|service|ya?ml|toml|html?|sql|py|sh|bash|zsh|ps1|js|ts|tsx|css|json|env|tf|hcl|go|rs|java|c|h|cpp|"
    r"rb|php|service|rst|tex|csv|repo|cnf|properties|gradle|vue|svg)$",
    re.IGNORECASE,
)


def loader(source: Source, project: Project) -> Load:
    """A function that finds an included template beside the file, or above it in the project."""
    here = Path(source.path).parent

    def load(name: str) -> str | None:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            return None
        folder = here
        for _ in range(6):
            one = folder / name
            try:
                if one.is_file() and one.stat().st_size < 1 << 20:
                    others(project, "includes")[one] = name
                    with one.open(encoding="utf-8", newline="") as file:
                        return file.read()
            except (OSError, UnicodeDecodeError, ValueError):
                return None
            if folder in (project.root, folder.parent):
                break
            folder = folder.parent
        return None

    return load


class Jinja:
    """One file, one prompt."""

    name = "jinja"

    def claims(self, path: str, head: str) -> float:
        pure = PurePath(path)
        suffix = pure.suffix.lower()
        if suffix in SUFFIXES:
            if _CODE.search(pure.stem) and not (
                in_prompt_folder(path) and evidence(path, head) >= 0.9
            ):
                return 0.0
            return min(0.85, evidence(path, head))
        return 0.0

    def read(self, source: Source, project: Project) -> Document:
        notes = _comments.suppressions(source, _comments.JINJA)
        names = Names(project.stability, evidence_beside(source, project))
        try:
            parsed = read_jinja(Region.whole(source), names, load=loader(source, project))
        except TemplateError as error:
            line = source.position(error.offset).line
            return Document(
                format=self.name, skipped=f"not a Jinja template: {error} (line {line})"
            )
        except RecursionError:
            return Document(format=self.name, skipped="nested too deeply")
        found = parts(parsed.items, template_role(source.path, source.text))
        if not found:
            return Document(format=self.name, suppressions=notes)
        template = Template(
            format=self.name,
            name=PurePath(source.path).name,
            parts=found,
            slice=Slice(0, len(source.text)),
            syntax="jinja",
        )
        return finish(source, self.name, [template], suppressions=notes, notes=parsed.notes)


FORMATS = [Jinja()]
