"""From a syntax tree's (line, UTF-8 column) to character offsets of the source text."""

from __future__ import annotations

import ast
import re

_BREAK = re.compile(r"\r\n|\r|\n")


class Offsets:
    """Offsets of one text. `shift` characters (a byte order mark) come before what was parsed."""

    def __init__(self, text: str, shift: int = 0) -> None:
        self.text = text
        self._ascii = text.isascii()
        self._starts = [shift, *(m.end() for m in _BREAK.finditer(text))]

    def at(self, line: int, column: int) -> int:
        """The offset of a 1-based line and a 0-based column in UTF-8 bytes."""
        start = self._starts[line - 1]
        if self._ascii:
            return start + column
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        row = self.text[start:end]
        if row.isascii():
            return start + column
        return start + len(row.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def row(self, line: int) -> int:
        """The offset at which a 1-based line begins."""
        return self._starts[line - 1]

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self.at(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
