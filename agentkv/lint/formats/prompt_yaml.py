"""YAML files of prompts that follow no framework's schema, and Haystack pipelines.

A scalar is a prompt when its key says so (`system_prompt`, `template`, `instructions`) or the file
lies among prompts, and it reads like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from agentkv.lint.formats import _chat, _comments, _file
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._evidence import excluded, in_prompt_folder, machine, says
from agentkv.lint.formats._expression import Names
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, parts
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._tree import Node
from agentkv.lint.formats.base import Project
from agentkv.lint.formats.plain import read_text, syntax_of
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Role, Template

_KEY = re.compile(
    r"(?:^|_)(?:system|user|assistant|human|developer)?_?(?:prompts?|prompt_template|message_template|instructions?|persona)$"
    r"|^(?:system|template|instructions|system_message|preamble|backstory)$",
    re.IGNORECASE,
)
_LINE = re.compile(
    r"^[ \t]*(?:-[ \t]+)?[\"']?(?:[\w]*_)?(?:system|user|prompt|prompts|template|instructions?|system_message|persona)[\"']?\s*:",
    re.MULTILINE | re.IGNORECASE,
)
_MACHINE = re.compile(
    r"^(?:openapi|swagger|apiVersion|kind|services|jobs|on|stages|image|name:\s*CI|repos|hosts|steps)\s*:|^-\s+(?:hosts|name|import_playbook|include_tasks)\s*:",
    re.MULTILINE,
)


class PromptYaml:
    """Each prompt of the file is a template of its own."""

    name = "yaml"

    def claims(self, path: str, head: str) -> float:
        if _file.suffix(path) not in _file.YAML or excluded(path):
            return 0.0
        if "haystack.components" in head and re.search(r"^components\s*:", head, re.MULTILINE):
            return 0.8
        if not in_prompt_folder(path):
            # Anywhere else a key must announce a prompt, and the text must read like one.
            return 0.5 if _LINE.search(head) and says(head) and not _MACHINE.search(head) else 0.0
        if _MACHINE.search(head) and not says(head):
            return 0.0
        return 0.6 if says(head) or _LINE.search(head) else 0.0

    def read(self, source: Source, project: Project) -> Document:
        root = _file.tree(source)
        if isinstance(root, str):
            return Document(format=self.name, skipped=root)
        names = Names(project.stability)
        folder = in_prompt_folder(source.path)
        templates: list[Template] = []
        for name, key, node in _candidates(root, ""):
            jinja = "haystack" in name or "components." in name
            try:
                one = self.template(
                    # The template of a pipeline's component is a prompt, whatever it says.
                    source,
                    name,
                    key,
                    node,
                    names,
                    folder or jinja,
                    "jinja" if jinja else None,
                )
            except (TemplateError, RecursionError):
                continue
            if one is not None:
                templates.append(one)
        comments = _comments.suppressions(source, _comments.HASH)
        return finish(source, self.name, templates, suppressions=comments)

    def template(
        self,
        source: Source,
        name: str,
        key: str,
        node: Node,
        names: Names,
        folder: bool,
        syntax: str | None,
    ) -> Template | None:
        texts = [n for n in node.walk(200) if n.kind == "text"]
        whole = "\n".join(t.value for t in texts)
        kind = "jinja" if syntax == "jinja" else syntax_of(whole)
        if len(whole) < 40 or machine(whole) or not (says(whole) or (folder and _KEY.search(key))):
            return None

        def read(region: Region) -> list[Item]:
            return read_text(region, names, kind)

        items = _chat.messages(node, read) if node.kind == "list" else read(node.region)
        role: Role = (
            "system" if re.search(r"system|instruction|persona", key, re.IGNORECASE) else "unknown"
        )
        if re.search(r"user|human", key, re.IGNORECASE):
            role = "user"
        return Template(
            format=self.name,
            name=name or PurePath(source.path).stem,
            parts=parts(items, role),
            slice=node.slice,
            writable=all(t.region.placed for t in texts),
            syntax=kind,
        )


def _candidates(
    node: Node, path: str, key: str = "", depth: int = 0
) -> Iterator[tuple[str, str, Node]]:
    """Path, key and node of each text or chat that may be a prompt."""
    if depth > 12:
        return
    if node.kind == "text" or _chat.is_chat(node):
        yield path, key, node
    elif node.kind == "map":
        for name, value, _ in node.pairs:
            yield from _candidates(value, f"{path}.{name}" if path else name, name, depth + 1)
    else:
        for n, item in enumerate(node.items):
            yield from _candidates(item, f"{path}[{n}]", key, depth + 1)


FORMATS = [PromptYaml()]
