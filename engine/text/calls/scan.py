"""Where a JSON object ends, found while it comes."""

from __future__ import annotations


class ObjectScan:
    """Follows one JSON object through pieces of text.

    Only brackets and strings are looked at, which is enough to find the end of valid JSON, whatever
    its strings say.
    """

    __slots__ = ("_depth", "_escaped", "_quoted", "done")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self.done = False

    def take(self, text: str) -> int:
        """How many characters of `text` belong to the object."""
        for index, char in enumerate(text):
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._quoted = False
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self.done = True
                    return index + 1
        return len(text)
