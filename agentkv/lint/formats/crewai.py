"""CrewAI: `agents.yaml` (role, goal, backstory) and `tasks.yaml` (description, expected_output)."""

from __future__ import annotations

import re
from pathlib import PurePath

from agentkv.lint.formats import _comments, _file
from agentkv.lint.formats._braces import hole
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._expression import Names
from agentkv.lint.formats._messages import span
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._tree import Node
from agentkv.lint.formats.base import Project
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Part, Piece, Template, Text

_INPUT = re.compile(r"\{\{\s*(?P<double>[A-Za-z_][\w\-]*)\s*\}\}|\{(?P<name>[A-Za-z_][\w\-]*)\}")
_AGENT = re.compile(r"^\s+(?:backstory|goal)\s*:", re.MULTILINE)
_TASK = re.compile(r"^\s+expected_output\s*:", re.MULTILINE)


class CrewAI:
    """A crew's agents or tasks. An agent is a system message, a task the user's."""

    name = "crewai"

    def claims(self, path: str, head: str) -> float:
        if _file.suffix(path) not in _file.YAML:
            return 0.0
        stem = PurePath(path).stem.lower()
        keys = len({m.group().strip() for m in _AGENT.finditer(head)})
        if keys == 2 and re.search(r"^\s+role\s*:", head, re.MULTILINE):
            return 0.95
        if _TASK.search(head) and re.search(r"^\s+description\s*:", head, re.MULTILINE):
            return 0.95
        return 0.6 if keys and "agents" in stem else 0.0

    def read(self, source: Source, project: Project) -> Document:
        root = _file.tree(source)
        if isinstance(root, str):
            return Document(format=self.name, skipped=root)
        names = Names(project.stability)
        templates: list[Template] = []
        for key, node, where in root.pairs:
            if node.kind != "map":
                continue
            pieces: list[Piece] = []
            # CrewAI renders an agent as "You are <role>. <backstory> ... goal is: <goal>".
            if node.get("backstory", "goal") is not None:
                self.add(pieces, "You are ", node.get("role"), names)
                self.add(pieces, ". ", node.get("backstory"), names)
                self.add(pieces, "\nYour personal goal is: ", node.get("goal"), names)
                part = Part(role="system", pieces=tuple(pieces), slice=span(pieces))
            elif (
                node.get("description") is not None
                and node.get("expected_output", "agent") is not None
            ):
                self.add(pieces, "\nCurrent Task: ", node.get("description"), names)
                self.add(
                    pieces,
                    "\n\nThis is the expected criteria for your final answer: ",
                    node.get("expected_output"),
                    names,
                )
                part = Part(role="user", pieces=tuple(pieces), slice=span(pieces))
            else:
                continue
            templates.append(
                Template(format=self.name, name=key, parts=(part,), slice=where, syntax="format")
            )
        notes = _comments.suppressions(source, _comments.HASH)
        return finish(source, self.name, templates, suppressions=notes)

    def add(self, pieces: list[Piece], lead: str, node: Node | None, names: Names) -> None:
        if node is None or node.kind != "text":
            return
        pieces.append(Text(lead))
        pieces += inputs(node.region, names)


def inputs(region: Region, names: Names) -> list[Piece]:
    """Pieces of a text whose `{name}` is filled in by replacement."""
    out: list[Piece] = []
    at = 0
    for match in _INPUT.finditer(region.text):
        if at < match.start():
            out.append(region.piece(at, match.start()))
        out.append(
            hole(region, match.start(), match.end(), names, match["name"] or match["double"])
        )
        at = match.end()
    if at < len(region.text):
        out.append(region.piece(at, len(region.text)))
    return out


FORMATS = [CrewAI()]
