"""Strips of Python: string literals, character by character, and texts of several of them."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from agentkv.lint.fixes.tape import Tape, Token, Uncuttable
from agentkv.lint.formats.python import literals
from agentkv.lint.source import Slice, Source


@lru_cache(maxsize=4)
def tree_of(text: str) -> ast.Module:
    """Raises SyntaxError."""
    return ast.parse(text.lstrip("\ufeff"))


class Places:
    """Offsets of syntax tree nodes in a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lead = 1 if text.startswith("\ufeff") else 0
        self.lines = [0]
        for found in re.finditer(r"\r\n|\r|\n|\f", text):
            if found[0] != "\f":
                self.lines.append(found.end())

    def offset(self, line: int, column: int) -> int:
        start = self.lines[line - 1] + (self.lead if line == 1 else 0)
        end = self.lines[line] if line < len(self.lines) else len(self.text)
        row = self.text[start:end]
        if row.isascii():
            return start + column
        return start + len(row.encode("utf-8")[:column].decode("utf-8", "ignore"))

    def of(self, node: ast.AST) -> tuple[int, int]:
        at: Any = node
        return self.offset(at.lineno, at.col_offset), self.offset(at.end_lineno, at.end_col_offset)


@lru_cache(maxsize=4)
def places_of(text: str) -> Places:
    return Places(text)


def python_tape(source: Source, region: Slice) -> Tape:
    try:
        tree = tree_of(source.text)
    except (SyntaxError, ValueError) as error:
        raise Uncuttable("the file is not valid Python.") from error
    places = places_of(source.text)
    best: ast.expr | None = None
    size = len(source.text) + 1
    owner = -1
    for node in _nodes(tree):
        if not hasattr(node, "lineno"):
            continue
        start, end = places.of(node)
        if start <= region.start and region.end <= end:
            if isinstance(node, ast.stmt):
                owner = max(owner, start)
            if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)) and end - start < size:
                best, size = node, end - start
    if best is None:
        raise Uncuttable(
            "its text is put together by code (join, append, a helper), not written as one."
        )
    operands = _operands(best)
    out: list[str] = []
    starts: list[int] = []
    holes: list[tuple[int, int]] = []
    tokens: list[Token] = []
    for operand in operands:
        start, end = places.of(operand)
        if not isinstance(operand, (ast.Constant, ast.JoinedStr)):
            begin = len(starts)
            out.append(source.text[start:end])
            starts += range(start, end)
            holes.append((begin, len(starts)))
            tokens.append(Token(start, end, begin, len(starts)))
            continue
        try:
            found = literals.scan(source.text, start, end)
        except (literals.Unreadable, ValueError, IndexError) as error:
            raise Uncuttable(
                "its string literal is written in a way that is not understood here."
            ) from error
        for literal in found:
            begin = len(starts)
            for bit in literal.parts:
                if isinstance(bit, literals.Chunk):
                    out.append(bit.value)
                    starts += [bit.offset(i) for i in range(len(bit.value))]
                else:
                    here = len(starts)
                    out.append(source.text[bit.start : bit.end])
                    starts += range(bit.start, bit.end)
                    holes.append((here, len(starts)))
            tokens.append(
                Token(literal.start, literal.end, begin, len(starts), literal.prefix, literal.quote)
            )
    if not tokens:
        raise Uncuttable("its string is empty.")
    last = tokens[-1]
    starts.append(last.end - len(last.quote or ""))
    one = tokens[0]
    quote = one.quote or '"'
    eol = "\r\n" if "\r\n" in source.text else "\n"
    newline = eol if len(quote) == 3 else "\\n"
    text = "".join(out)
    lead, tail = _inside(starts, region, len(text))
    if len(tokens) == 1:
        return Tape(
            text[lead:tail],
            starts[lead : tail + 1],
            tuple((a - lead, b - lead) for a, b in holes if lead <= a and b <= tail),
            "python",
            newline,
            newline,
            (Token(one.start, one.end, 0, tail - lead, one.prefix, one.quote),),
            owner,
        )
    return Tape(text, starts, tuple(holes), "python", newline, newline, tuple(tokens), owner)


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """Every node, but not those inside f-strings, whose positions are not exact before 3.12."""
    out: list[ast.AST] = []
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        out.append(node)
        if not isinstance(node, ast.JoinedStr):
            stack.extend(ast.iter_child_nodes(node))
    return out


def _inside(starts: Sequence[int], region: Slice, size: int) -> tuple[int, int]:
    """The part of a literal that the region covers (a role line before it may be outside)."""
    lead = bisect_left(starts, region.start)
    tail = bisect_left(starts, region.end)
    return min(lead, size), min(max(tail, lead), size)


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        if not isinstance(node.op, ast.Add):
            # "..." % x: the template is on the left.
            if isinstance(node.op, ast.Mod):
                return _operands(node.left)
            raise Uncuttable("its text is the result of an operation.")
        return [*_operands(node.left), *_operands(node.right)]
    return [node]
