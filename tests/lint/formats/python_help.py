"""Reading small Python sources in tests."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from agentkv.lint.formats.base import Project
from agentkv.lint.formats.python.reader import PythonFormat
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Hole, Part, Request, Template, Text, ToolsUse

RULES = (
    "You are a helpful assistant. Always answer the user's question politely and in full sentences."
)


def read(code: str, *, path: str = "app.py", root: Path | None = None) -> tuple[Document, Source]:
    """The document of a source that lies alone (indented sources are dedented)."""
    source = Source(path, textwrap.dedent(code).lstrip("\n"))
    return PythonFormat().read(source, Project(root or Path("/nowhere"))), source


def project(root: Path, files: dict[str, str]) -> dict[str, tuple[Document, Source]]:
    """Documents of several files of one project."""
    paths = []
    for name, code in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code).lstrip("\n"))
        paths.append(path)
    whole = Project(root, sorted(paths))
    out = {}
    for name in files:
        source = Source.read(root / name)
        out[name] = (PythonFormat().read(source, whole), source)
    return out


def only(document: Document) -> Template:
    assert len(document.templates) == 1, [t.name for t in document.templates]
    return document.templates[0]


def request(document: Document) -> Request:
    assert len(document.requests) == 1, document.requests
    return document.requests[0]


def holes(template: Template) -> list[Hole]:
    return [h for _, _, h in template.holes()]


def hole(template: Template, name: str) -> Hole:
    """The hole with a name, sections' inner ones too."""

    def look(pieces: tuple[Text | Hole, ...]) -> Hole | None:
        for p in pieces:
            if isinstance(p, Hole):
                if p.name == name:
                    return p
                if (found := look(p.inner)) is not None:
                    return found
        return None

    for part in template.parts:
        if (found := look(part.pieces)) is not None:
            return found
    raise AssertionError(f"no hole {name}: {[h.name for h in holes(template)]}")


def tools(found: Request) -> ToolsUse:
    assert found.tools is not None
    return found.tools


def section(pieces: Iterable[Text | Hole]) -> Hole:
    """The first hole that is more than a name: conditional, repeated, or a constant's text."""
    return next(p for p in pieces if isinstance(p, Hole) and (p.traits or p.inner))


def inside(hole: Hole) -> str:
    """The literal text in a hole."""
    return "".join(p.value if isinstance(p, Text) else inside(p) for p in hole.inner)


def shape(part: Part) -> str:
    """`text{hole}text`, for comparing at a glance."""
    return "".join(p.value if isinstance(p, Text) else "{" + p.name + "}" for p in part.pieces)
