"""Canonical tool definitions, remembered by content: a bound list of tools comes in every call.

The key is the definition's own bytes, not its identity: a dict that its owner changes in place is
another tool, and is read anew.
"""

from __future__ import annotations

import marshal
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, cast

from agentkv.prompt.canonical import canonical_json, canonical_tool
from agentkv.prompt.segment import content_hash

_ENTRIES = 4096
_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in its one form: name, JSON text, and a hash that stands for it."""

    name: str
    text: str
    content_hash: str
    _packed: bytes = field(repr=False)

    @property
    def definition(self) -> dict[str, Any]:
        """The definition as a dict of its own, which the caller may change."""
        found: dict[str, Any] = marshal.loads(self._packed)
        return found


class _Known:
    """Definitions read before: bounded in number and bytes, safe from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tools: OrderedDict[bytes, Tool] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> Tool | None:
        with self._lock:
            found = self._tools.get(key)
            if found is not None:
                self._tools.move_to_end(key)
            return found

    def put(self, key: bytes, tool: Tool) -> None:
        with self._lock:
            if key in self._tools:
                return
            self._tools[key] = tool
            self._bytes += _size(tool)
            while len(self._tools) > _ENTRIES or self._bytes > _BYTES:
                self._bytes -= _size(self._tools.popitem(last=False)[1])


_known = _Known()


def read_tool(tool: Mapping[str, Any]) -> Tool:
    """`tool`, of any accepted shape, in its canonical form.

    Raises `InvalidRequest(param="tools")` when the definition cannot be read.
    """
    try:
        # Version 0 writes equal values as equal bytes, and refuses all but the built-in types.
        key = blake2b(marshal.dumps(cast(Any, tool), 0), digest_size=16).digest()
    except ValueError:
        return _read(tool)
    found = _known.get(key)
    if found is None:
        found = _read(tool)
        _known.put(key, found)
    return found


def _read(tool: Mapping[str, Any]) -> Tool:
    definition = canonical_tool(tool)
    text = canonical_json(definition)
    name = str(definition["function"]["name"])
    return Tool(name, text, content_hash(text), marshal.dumps(definition))


def _size(tool: Tool) -> int:
    return len(tool.text) + len(tool._packed)
