"""LangChain prompts that were saved: `{"lc": 1, "type": "constructor"}` and `_type: prompt`."""

from __future__ import annotations

import re

from agentkv.lint.formats import _comments, _file, _handlebars
from agentkv.lint.formats._braces import read_format
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._expression import Facts, Names
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, Message, parts
from agentkv.lint.formats._tree import Node
from agentkv.lint.formats.base import Project
from agentkv.lint.names import guess
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Hole, Piece, Role, Template, Text

_ROLES: tuple[tuple[str, Role], ...] = (
    ("System", "system"),
    ("Human", "user"),
    ("AI", "assistant"),
    ("Tool", "tool"),
    ("Function", "tool"),
)
_KINDS = ("prompt", "few_shot", "few_shot_with_templates", "chat")


class LangChainFile:
    """A saved prompt or chat prompt."""

    name = "langchain"

    def claims(self, path: str, head: str) -> float:
        suffix = _file.suffix(path)
        if suffix in _file.JSON:
            if re.search(r'"lc"\s*:\s*1\b', head) and re.search(
                r'"(?:\w*PromptTemplate|prompts|messages)"', head
            ):
                return 0.95
            if re.search(r'"_type"\s*:\s*"(?:prompt|few_shot\w*|chat)"', head):
                return 0.95
            return (
                0.8 if '"input_variables"' in head and re.search(r'"template"\s*:', head) else 0.0
            )
        if suffix in _file.YAML:
            if re.search(
                r"^[\"']?_type[\"']?\s*:\s*[\"']?(?:prompt|few_shot\w*|chat)\b", head, re.MULTILINE
            ):
                return 0.95
            if re.search(r"^[\"']?input_variables[\"']?\s*:", head, re.MULTILINE) and re.search(
                r"^[\"']?template[\"']?\s*:", head, re.MULTILINE
            ):
                return 0.75
        return 0.0

    def read(self, source: Source, project: Project) -> Document:
        root = _file.tree(source)
        if isinstance(root, str):
            return Document(format=self.name, skipped=root)
        templates: list[Template] = []
        for node in _prompts(root):
            try:
                one = _Prompt(node, project).template()
            except TemplateError as error:
                return Document(format=self.name, skipped=f"not a template: {error}")
            except RecursionError:
                return Document(format=self.name, skipped="nested too deeply")
            if one is not None:
                templates.append(one)
        comments = (
            _comments.suppressions(source, _comments.HASH)
            if _file.suffix(source.path) in _file.YAML
            else ()
        )
        return finish(source, self.name, templates, suppressions=comments)


def _prompts(node: Node) -> list[Node]:
    """The outermost prompts of a tree: a saved chain may hold several."""
    if (node.kind == "map" and _class(node).endswith(("PromptTemplate", "Prompt"))) or _plain(node):
        return [node]
    return [p for n in [*(v for _, v, _ in node.pairs), *node.items] for p in _prompts(n)]


def _plain(node: Node) -> bool:
    return node.kind == "map" and (
        node.text("_type") in _KINDS
        or (
            node.get("input_variables") is not None
            and node.get("template", "prefix", "messages") is not None
        )
    )


def _class(node: Node) -> str:
    path = node.get("id")
    return path.items[-1].value if path is not None and path.kind == "list" and path.items else ""


class _Prompt:
    def __init__(self, node: Node, project: Project) -> None:
        self.node = node
        self.names = Names(project.stability)
        self.placed = True
        self.syntax = "format"

    def template(self) -> Template | None:
        items = self.items(self.node)
        if not items:
            return None
        kwargs = _kwargs(self.node)
        return Template(
            format="langchain",
            name=self.node.text("name")
            or kwargs.text("name")
            or _class(self.node)
            or self.node.text("_type")
            or "prompt",
            parts=parts(items),
            slice=self.node.slice,
            writable=self.placed,
            syntax="jinja"
            if self.syntax == "jinja2"
            else "mustache"
            if self.syntax == "mustache"
            else "format",
        )

    def items(self, node: Node) -> list[Item]:
        kwargs = _kwargs(node)
        self.partials(kwargs)
        messages = kwargs.get("messages")
        if messages is not None and messages.kind == "list":
            return [i for m in messages.items if (i := self.message(m)) is not None]
        if kwargs.get("prefix", "suffix") is not None:
            out = self.text(kwargs, "prefix")
            examples = kwargs.get("examples")
            if examples is not None and examples.kind != "other":
                out += [
                    Text(n.value, n.slice)
                    for n in examples.walk(2000)
                    if n.kind == "text" and n.value
                ]
            elif kwargs.get("example_selector") is not None:
                selector = kwargs.get("example_selector")
                assert selector is not None
                out.append(
                    Hole(
                        expr="example_selector",
                        name="examples",
                        level="turn",
                        slice=selector.slice,
                        traits=frozenset({"examples", "selector"}),
                        why="an example selector",
                        known=True,
                    )
                )
            return out + self.text(kwargs, "suffix")
        return self.text(kwargs, "template")

    def text(self, kwargs: Node, key: str) -> list[Item]:
        node = kwargs.get(key)
        if node is None or node.kind != "text":
            return []
        region = node.region
        self.placed &= region.placed
        form = kwargs.text("template_format") or "f-string"
        self.syntax = form
        if form == "jinja2":
            return read_jinja(region, self.names).items
        if form == "mustache":
            return _handlebars.read(region, self.names, "mustache")
        return read_format(region, self.names)

    def partials(self, kwargs: Node) -> None:
        values = kwargs.get("partial_variables")
        found = dict(self.names.evidence)
        for name, node, _ in values.pairs if values is not None else []:
            if node.kind in ("text", "other"):
                found[name] = Facts(
                    "build",
                    guess(name)[1],
                    "a partial variable",
                    True,
                    name,
                    (name,),
                    node.value[:200],
                )
        self.names.evidence = found

    def message(self, node: Node) -> Message | None:
        kind, kwargs = _class(node) or node.text("_type") or "", _kwargs(node)
        if "Placeholder" in kind or kwargs.get("variable_name") is not None:
            name = kwargs.text("variable_name") or "messages"
            hole = Hole(
                expr=name,
                name=name,
                level="turn",
                slice=node.slice,
                traits=frozenset({"scratchpad" if "scratchpad" in name else "history"}),
                why="a placeholder for messages",
                known=True,
            )
            return Message("unknown", [hole], node.slice, True)
        role: Role = next((r for word, r in _ROLES if kind.startswith(word)), "unknown")
        prompt = kwargs.get("prompt")
        if prompt is not None and prompt.kind == "list":
            items = [i for p in prompt.items for i in self.items(p)]
        elif prompt is not None:
            items = self.items(prompt)
        elif kwargs.get("template") is not None:
            items = self.text(kwargs, "template")
        else:
            content = kwargs.get("content")
            items = (
                [content.region.piece(0, len(content.value))]
                if content is not None and content.kind == "text"
                else []
            )
        pieces: list[Piece] = [i for i in items if not isinstance(i, Message)]
        return Message(role, pieces, node.slice)


def _kwargs(node: Node) -> Node:
    return node.get("kwargs") or node


FORMATS = [LangChainFile()]
