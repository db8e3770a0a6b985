"""Documents of rules' tests, built from literals."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.names import guess
from agentkv.lint.rule import find
from agentkv.lint.source import Slice
from agentkv.lint.target import target
from agentkv.lint.template import (
    Document,
    HistoryOp,
    Hole,
    Level,
    Part,
    Piece,
    Request,
    Role,
    Setting,
    Template,
    Text,
    ToolsUse,
)


class Build:
    """Builds documents. A token is a word here, and offsets are handed out one after another."""

    def __init__(self) -> None:
        self.at = 0

    def slice(self, length: int = 1) -> Slice:
        self.at += length + 1
        return Slice(self.at - length - 1, self.at - 1)

    def context(self, **more: Any) -> Context:
        name = more.pop("target", "sglang")
        count = more.pop("count", lambda text: len(text.split()))
        return Context(count=count, exact=True, target=target(name), **more)

    def rules(self, tokens: int, seed: str = "rule") -> Text:
        """Static prose: sentences without two equal ones."""
        words = [f"{seed}{i}" for i in range(tokens)]
        lines = [" ".join(words[i : i + 12]) + "." for i in range(0, tokens, 12)]
        return self.text("\n" + "\n".join(lines) + "\n")

    def text(self, value: str) -> Text:
        return Text(value, self.slice(len(value)))

    def hole(self, name: str, level: Level | None = None, *traits: str, **more: Any) -> Hole:
        """With a level it is known, without one its name decides."""
        guessed, signs = guess(name)
        known = more.pop("known", level is not None)
        expr = more.pop("expr", f"{{{name}}}")
        return Hole(
            expr=expr,
            name=name,
            level=level or guessed,
            slice=self.slice(len(expr)),
            traits=frozenset(traits) if level is not None else signs | frozenset(traits),  # type: ignore[arg-type]
            known=known,
            **more,
        )

    def part(self, role: Role, *pieces: Piece | str, **more: Any) -> Part:
        made = tuple(self.text(p) if isinstance(p, str) else p for p in pieces)
        return Part(role=role, pieces=made, slice=self.slice(4), **more)

    def history(self, name: str = "history") -> Part:
        return self.part("unknown", self.hole(name, "turn", "history"), placeholder=True)

    def template(self, *parts: Part | Piece | str, **more: Any) -> Template:
        """Parts, or the pieces of one user message."""
        if any(not isinstance(p, Part) for p in parts):
            parts = (self.part(more.pop("role", "user"), *parts),)  # type: ignore[arg-type]
        settings = {"format": "python", "name": "PROMPT", "syntax": "python", **more}
        region = Slice(0, self.slice(10).end)  # the template stands around its pieces
        return Template(parts=parts, slice=region, **settings)  # type: ignore[arg-type]

    def op(self, kind: str, **more: Any) -> HistoryOp:
        return HistoryOp(kind=kind, slice=self.slice(), **more)  # type: ignore[arg-type]

    def tools(self, *traits: str, **more: Any) -> ToolsUse:
        return ToolsUse(slice=self.slice(), traits=frozenset(traits), **more)  # type: ignore[arg-type]

    def setting(self, name: str, level: Level, *traits: str, **more: Any) -> Setting:
        return Setting(name=name, slice=self.slice(), level=level, traits=frozenset(traits), **more)  # type: ignore[arg-type]

    def request(self, template: Template | None = None, **more: Any) -> Request:
        settings = {"api": "openai", **more}
        return Request(slice=self.slice(20), template=template, **settings)

    def document(self, *things: Template | Request | Part | Piece | str, **more: Any) -> Document:
        """Of templates and requests; pieces make one template."""
        if any(not isinstance(t, Template | Request) for t in things):
            things = (self.template(*things),)  # type: ignore[arg-type]
        templates = [t for t in things if isinstance(t, Template)]
        requests = [t for t in things if isinstance(t, Request)]
        for one in requests:
            if one.template is not None and one.template not in templates:
                templates.append(one.template)
        format = templates[0].format if templates else "python"
        return Document(format=format, templates=tuple(templates), requests=tuple(requests), **more)

    def find(
        self, document: Document, context: Context | None = None, **more: Any
    ) -> list[Finding]:
        return find(document, context or self.context(**more))

    def codes(self, document: Document, context: Context | None = None, **more: Any) -> list[str]:
        return [f.code for f in self.find(document, context, **more)]


@pytest.fixture
def build() -> Build:
    return Build()
