"""JSON and YAML as one kind of tree whose every node knows its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from agentkv.lint.formats._region import Region
from agentkv.lint.source import Slice


class TreeError(ValueError):
    """The text cannot be parsed; `line` is where (0: unknown)."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class Node:
    """`value` is the text of a string, the raw text of any other scalar, and empty for the rest."""

    kind: Literal["map", "list", "text", "other"]
    slice: Slice
    value: str = ""
    pairs: list[tuple[str, Node, Slice]] = field(default_factory=list)
    """Key, value, and the place of both together."""
    items: list[Node] = field(default_factory=list)
    locate: Callable[[], Region] | None = None
    """Where each character of a text stands, worked out when somebody asks."""

    def get(self, *keys: str) -> Node | None:
        """The value of the first of these keys that the mapping has."""
        for key in keys:
            for name, node, _ in self.pairs:
                if name == key:
                    return node
        return None

    def at(self, *path: str) -> Node | None:
        node: Node | None = self
        for key in path:
            node = node.get(key) if node is not None else None
        return node

    def text(self, *keys: str) -> str | None:
        """The text under one of these keys; None where there is none or it is no scalar."""
        node = self.get(*keys)
        return node.value if node is not None and node.kind in ("text", "other") else None

    def pair(self, *keys: str) -> Slice | None:
        """Where a key and its value stand."""
        return next((where for name, _, where in self.pairs if name in keys), None)

    @property
    def keys(self) -> list[str]:
        return [name for name, _, _ in self.pairs]

    @property
    def region(self) -> Region:
        """The characters of a text. Not placed where they could not be located exactly."""
        return self.locate() if self.locate is not None else Region(self.value, placed=False)

    def walk(self, most: int = 20_000) -> Iterator[Node]:
        """This node and all below it, each once, in order."""
        seen: set[int] = set()
        todo = [self]
        while todo and most > 0:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            most -= 1
            yield node
            todo += [n for _, n, _ in reversed(node.pairs)] + node.items[::-1]
