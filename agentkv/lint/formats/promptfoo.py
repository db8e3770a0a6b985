"""promptfoo: `prompts` of a configuration, with the `vars` of its tests as evidence of what changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from agentkv.lint.formats import _chat, _comments, _file, _json, _samples, _yaml
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._expression import Facts, Names
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, parts
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.formats.base import Project
from agentkv.lint.source import Source
from agentkv.lint.template import Document, Template

_PROMPTS = re.compile(r"^[\"']?prompts[\"']?\s*:", re.MULTILINE)
_OTHERS = re.compile(
    r"^[\"']?(?:providers|targets|tests|defaultTest|scenarios)[\"']?\s*:", re.MULTILINE
)


class Promptfoo:
    """`promptfooconfig.yaml` and its like."""

    name = "promptfoo"

    def claims(self, path: str, head: str) -> float:
        suffix = _file.suffix(path)
        if suffix not in _file.YAML and suffix not in _file.JSON:
            return 0.0
        stem = PurePath(path).stem.lower()
        if stem.startswith("promptfooconfig") or "promptfoo" in stem:
            return 1.0
        if suffix in _file.YAML and "promptfoo.dev/config-schema" in head:
            return 1.0
        if suffix in _file.YAML and _PROMPTS.search(head) and len(_OTHERS.findall(head)) >= 1:
            return 0.8
        return 0.0

    def read(self, source: Source, project: Project) -> Document:
        root = _file.tree(source)
        if isinstance(root, str):
            return Document(format=self.name, skipped=root)
        names = Names(project.stability, variables(root))
        templates: list[Template] = []
        notes: list[str] = []
        prompts = root.get("prompts")
        for number, node in enumerate(_prompts(prompts)):
            label = node.text("label", "id") if node.kind == "map" else None
            node = node.get("raw", "prompt", "content") or node if node.kind == "map" else node
            if node.kind != "text":
                continue
            if re.match(
                r"(?:file|https?|langfuse|portkey|helicone|exec|python)://|\S+\.(?:txt|json|ya?ml|py|js|ts|j2|md|csv)\Z",
                node.value.strip(),
            ):
                notes.append(f"prompt {node.value.strip()[:80]!r} is a file of its own")
                continue
            try:
                items = prompt(node.region, names)
            except TemplateError as error:
                notes.append(f"prompt {number + 1} is no template: {error}")
                continue
            except RecursionError:
                continue
            templates.append(
                Template(
                    format=self.name,
                    name=label or f"prompt {number + 1}",
                    parts=parts(items),
                    slice=node.slice,
                    writable=node.region.placed,
                    syntax="jinja",
                )
            )
        comments = _comments.suppressions(source, _comments.HASH)
        return finish(source, self.name, templates, suppressions=comments, notes=notes)


def _prompts(node: Node | None) -> list[Node]:
    if node is None:
        return []
    if node.kind == "list":
        return node.items
    if node.kind == "map":
        return [value for _, value, _ in node.pairs]
    return [node]


def prompt(region: Region, names: Names) -> list[Item]:
    """Items of one prompt: a text, or a chat written as JSON or YAML inside it."""
    text = region.text.strip()

    def read(part: Region) -> list[Item]:
        return read_jinja(part, names).items

    tree: Node | None = None
    if text.startswith("[") and '"role"' in text:
        tree = _inner(region, json=True)
    elif re.match(r"-\s+role\s*:", text):
        tree = _inner(region, json=False)
    if tree is not None and _chat.is_chat(tree):
        return _chat.messages(tree, lambda inner: read(_composed(region, inner)))
    return read(region)


def _inner(region: Region, *, json: bool) -> Node | None:
    try:
        return _json.parse(region.text) if json else _yaml.parse(region.text)
    except (TreeError, RecursionError):
        return None


def _composed(outer: Region, inner: Region) -> Region:
    """A region found inside the text of another, with its places in the file."""
    if not outer.placed or not inner.placed:
        return Region(inner.text, placed=False)
    starts = [outer.at(inner.at(n)) for n in range(len(inner.text) + 1)]
    return Region(inner.text, 0, starts)


def variables(root: Node) -> dict[str, Facts]:
    """Facts of every variable that the tests give."""
    tests: list[dict[str, str]] = []
    default = _vars(root.at("defaultTest", "vars"))
    listed = root.get("tests")
    for test in listed.items if listed is not None else []:
        tests += _expanded(default, test.get("vars"))
    for scenario in (root.get("scenarios") or Node("list", root.slice)).items:
        for config in (scenario.get("config") or Node("list", root.slice)).items:
            tests += _expanded(default, config.get("vars"))
    found = _samples.table(tests, "tests")
    for name, value in default.items():
        if name not in found:
            # Given once for every test there will be.
            found[name] = _samples.judged(name, [value, value], 2, "tests")
    return found


def _expanded(default: dict[str, str], node: Node | None) -> Iterable[dict[str, str]]:
    """One set of values for each member of a list, as promptfoo runs them."""
    base = default | _vars(node)
    many = [
        (n, [i.value for i in v.items])
        for n, v, _ in (node.pairs if node is not None else [])
        if v.kind == "list"
    ]
    if not many:
        return [base]
    return [base | {name: value} for name, values in many for value in values]


def _vars(node: Node | None) -> dict[str, str]:
    if node is None or node.kind != "map":
        return {}
    return {n: v.value for n, v, _ in node.pairs if v.kind in ("text", "other")}


FORMATS = [Promptfoo()]
