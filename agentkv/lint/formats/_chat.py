"""Lists of `{role, content}` in JSON and YAML whose texts are templates."""

from __future__ import annotations

from collections.abc import Callable

from agentkv.lint.formats._jinja import role_of
from agentkv.lint.formats._messages import Item, Message
from agentkv.lint.formats._region import Region
from agentkv.lint.formats._tree import Node

Read = Callable[[Region], list[Item]]


def is_chat(node: Node) -> bool:
    """Whether a node is a list of messages."""
    return (
        node.kind == "list"
        and bool(node.items)
        and all(
            i.kind == "map"
            and (i.get("role", "type") is not None or len(i.pairs) == 1)
            and _content(i) is not None
            for i in node.items
        )
    )


def _content(node: Node) -> Node | None:
    found = node.get("content", "text", "template", "parts")
    if found is None and len(node.pairs) == 1 and role_of(node.pairs[0][0]) != "unknown":
        found = node.pairs[0][1]
    return found


def messages(node: Node, read: Read) -> list[Item]:
    """A message for each of a list of messages."""
    out: list[Item] = []
    for item in node.items:
        role = item.text("role", "type") or (item.pairs[0][0] if len(item.pairs) == 1 else "")
        content = _content(item)
        pieces: list[Item] = []
        for text in _texts(content) if content is not None else []:
            pieces += read(text.region)
        out.append(
            Message(role_of(role), [p for p in pieces if not isinstance(p, Message)], item.slice)
        )
    return out


def _texts(node: Node) -> list[Node]:
    if node.kind == "text":
        return [node]
    if node.kind == "map":
        inner = node.get("text", "content")
        return _texts(inner) if inner is not None else []
    return [t for i in node.items for t in _texts(i)]
