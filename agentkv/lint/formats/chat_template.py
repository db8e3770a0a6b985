"""Chat templates of models: `chat_template.jinja`, and `chat_template` in `tokenizer_config.json`.

A chat template is not a prompt: every hole is given by the caller, and what matters is what it adds
by itself (a date) and what it does to old turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from agentkv.lint.formats import _comments, _json
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._expression import Names
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, Message, parts
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._thinking import operations
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.formats.base import Project
from agentkv.lint.formats.jinja import SUFFIXES
from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Document, Hole, Piece, Request, Template

_OWN = re.compile(r"\badd_generation_prompt\b|\b(?:bos|eos)_token\b|\braise_exception\s*\(")
_LOOP = re.compile(r"\{%-?\s*for\s+(?:message|msg|m)\s+in\s+\w*messages")
_ROLE = re.compile(r"\[['\"]role['\"]\]|\.role\b")
_JSON = frozenset({"tokenizer_config.json", "chat_template.json", "processor_config.json"})


class ChatTemplate:
    """A model's chat template."""

    name = "chat_template"

    def claims(self, path: str, head: str) -> float:
        pure = PurePath(path)
        name = pure.name.lower()
        if name in _JSON:
            return 0.95
        if pure.suffix.lower() not in SUFFIXES:
            return 0.0
        if re.match(r"(?:.*[_.-])?chat[_-]?template", pure.stem.lower()):
            return 1.0
        if _LOOP.search(head) and _ROLE.search(head):
            return 0.95 if _OWN.search(head) or "<|" in head or "[INST]" in head else 0.6
        return 0.9 if len(set(_OWN.findall(head))) >= 1 and "messages" in head else 0.0

    def read(self, source: Source, project: Project) -> Document:
        found: list[tuple[str, Region, Slice]] = []
        if PurePath(source.path).suffix.lower() == ".json":
            try:
                root = _json.parse(source.text)
            except (TreeError, RecursionError) as error:
                return Document(format=self.name, skipped=f"not JSON: {error}")
            found = [(n, node.region, node.slice) for n, node in _templates(root)]
        else:
            found = [(PurePath(source.path).name, Region.whole(source), Slice(0, len(source.text)))]
        templates: list[Template] = []
        requests: list[Request] = []
        for name, region, where in found:
            try:
                template, request = _read(name, region, where, project)
            except TemplateError as error:
                return Document(format=self.name, skipped=f"not a Jinja template: {error}")
            except RecursionError:
                return Document(format=self.name, skipped="nested too deeply")
            templates.append(template)
            requests.append(request)
        comments = (
            ()
            if source.path.lower().endswith(".json")
            else _comments.suppressions(source, _comments.JINJA)
        )
        return finish(source, self.name, templates, requests=requests, suppressions=comments)


def _templates(root: Node) -> Iterator[tuple[str, Node]]:
    node = root.get("chat_template")
    if node is None:
        return
    if node.kind == "text":
        yield "chat_template", node
    for item in node.items:
        text = item.get("template")
        if text is not None and text.kind == "text":
            yield f"chat_template {item.text('name') or ''}".strip(), text
    for name, value, _ in node.pairs:
        if value.kind == "text":
            yield f"chat_template {name}", value


def _read(name: str, region: Region, where: Slice, project: Project) -> tuple[Template, Request]:
    parsed = read_jinja(region, Names(project.stability), trim=True)
    items: list[Item] = []
    for item in parsed.items:
        if isinstance(item, Hole) and "loop" in item.traits and _over_messages(item):
            hole = replace(
                item, level="turn", traits=item.traits | {"history"}, why="the messages", known=True
            )
            items.append(Message("unknown", [_given(hole, project)], item.slice, True))
        elif isinstance(item, Hole):
            items.append(_given(item, project))
        else:
            items.append(item)
    template = Template(
        format="chat_template",
        name=name,
        parts=parts(items),
        slice=where,
        writable=region.placed,
        followed=True,
        syntax="jinja",
    )
    request = Request(
        api="chat_template", slice=where, template=template, history=operations(region)
    )
    return template, request


def _over_messages(hole: Hole) -> bool:
    return "messages" in hole.name or any("messages" in r for r in hole.reads)


def _given(hole: Hole, project: Project) -> Hole:
    """Everything that is no clock comes from the caller, who answers for it."""
    inner: tuple[Piece, ...] = tuple(
        _given(p, project) if isinstance(p, Hole) else p for p in hole.inner
    )
    own = hole.level == "call" and bool(
        hole.traits & {"clock", "date", "random_id", "random_content"}
    )
    history = hole.known and "loop" in hole.traits and "history" in hole.traits
    if own or history or hole.name in project.stability:
        return replace(hole, inner=inner)
    return replace(hole, level="deploy", why="given by the caller", known=False, inner=inner)


FORMATS = [ChatTemplate()]
