"""Reading a JSON or YAML file as a tree."""

from __future__ import annotations

from pathlib import PurePath

from agentkv.lint.formats import _json, _yaml
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.source import Source

YAML = frozenset({".yaml", ".yml"})
JSON = frozenset({".json"})


def suffix(path: str) -> str:
    return PurePath(path).suffix.lower()


def tree(source: Source) -> Node | str:
    """The tree of a file, or why there is none."""
    try:
        if suffix(source.path) in JSON:
            return _json.parse(source.text)
        node = _yaml.parse(source.text)
    except TreeError as error:
        where = f" (line {error.line})" if error.line else ""
        return f"cannot be parsed: {error}{where}"
    except RecursionError:
        return "nested too deeply"
    return node if node is not None else "empty"
