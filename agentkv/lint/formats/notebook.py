"""Jupyter notebooks: their code cells as one Python module, with every place exact in the file.

A finding points into the `.ipynb` itself and names its cell. Nothing is edited: what a person
changes in a notebook is a cell, not the JSON around it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from agentkv.lint.formats import _json
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.formats.base import Project
from agentkv.lint.formats.python.reader import PythonFormat
from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Document, Suppression

_PYTHON = re.compile(r"python|ipython", re.IGNORECASE)
_MAGIC = re.compile(r"^(\s*)(?:[%!?]|[\w.]+\?{1,2}\s*$)")
_ASSIGNED = re.compile(r"^(\s*[\w, ]+=\s*)[%!](.*)$", re.DOTALL)
_WHOLE = re.compile(r"^%%(\w+)")
_TIMERS = frozenset({"time", "timeit", "capture", "prun", "memit", "mprun"})
"""Cell magics whose cell is Python all the same."""


@dataclass(slots=True)
class Cells:
    """A module put together from cells. Character `i` stands at `[starts[i], ends[i])` of the file."""

    text: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    begins: list[tuple[int, str]] = field(default_factory=list)
    """Where each line of a cell begins in the file, and what it is called."""
    notes: list[str] = field(default_factory=list)

    def add(self, number: int, source: Node) -> None:
        """One code cell. What is no Python is left out, with a note."""
        lines = _lines(source)
        kept = _runnable([text for text, _, _ in lines])
        for n, (_, starts, _) in enumerate(lines, 1):
            if starts:
                self.begins.append((starts[0], f"cell {number}, line {n}"))
        if kept is None:
            return
        if error := _broken("".join(kept)):
            self.notes.append(f"cell {number} is not valid Python: {error}")
            return
        for text, (_, starts, ends) in zip(kept, lines, strict=True):
            self.text.append(text)
            self.starts += starts
            self.ends += ends
        if self.text and not self.text[-1].endswith("\n"):
            self.text.append("\n")
            self.starts.append(self.ends[-1])
            self.ends.append(self.ends[-1])

    def place(self, where: Slice) -> Slice:
        if where.start >= len(self.starts):
            end = self.ends[-1] if self.ends else 0
            return Slice(end, end)
        start = self.starts[where.start]
        end = self.ends[where.end - 1] if where.end > where.start else start
        return Slice(start, max(start, end))

    def placed(self, value: Any) -> Any:
        """A part of a document with its slices in the file."""
        if isinstance(value, Slice):
            return self.place(value)
        if isinstance(value, tuple):
            return tuple(self.placed(v) for v in value)
        if is_dataclass(value) and not isinstance(value, type):
            changed = {f.name: self.placed(getattr(value, f.name)) for f in fields(value)}
            return replace(value, **changed)
        return value


def _lines(source: Node) -> list[tuple[str, list[int], list[int]]]:
    """Lines of a cell: their text, and where each character begins and ends."""
    found: list[tuple[str, list[int], list[int]]] = []
    for node in source.items if source.kind == "list" else [source]:
        region = node.region
        if node.kind != "text" or not region.placed:
            continue
        at = 0
        for line in node.value.splitlines(keepends=True):
            places = [region.at(i) for i in range(at, at + len(line) + 1)]
            found.append((line, places[:-1], places[1:]))
            at += len(line)
    return found


def _runnable(lines: list[str]) -> list[str] | None:
    """Lines with magics and shell commands made comments of the same length; None: no Python."""
    first = next((line for line in lines if line.strip()), "")
    whole = _WHOLE.match(first.lstrip())
    if whole is not None and whole[1] not in _TIMERS:
        return None
    # A string may have lines that look like a magic; so only where it is no Python as it stands.
    return lines if not _broken("".join(lines)) else [_plain(line) for line in lines]


def _plain(line: str) -> str:
    assigned = _ASSIGNED.match(line)
    if assigned is not None and len(assigned[2].rstrip("\r\n")) >= 3:
        end = line[len(line.rstrip("\r\n")) :]
        return f"{assigned[1]}None".ljust(len(line) - len(end)) + end
    magic = _MAGIC.match(line)
    if magic is None or line.lstrip().startswith("%="):
        return line
    body = line.strip()
    fill = "pass" if magic[1] and len(body) >= 4 else "#"
    end = line[len(line.rstrip()) :]
    return (magic[1] + fill).ljust(len(line) - len(end)) + end


def _broken(text: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return f"{error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)
    return None


class Notebook:
    """`.ipynb` files of Python kernels."""

    name = "notebook"

    def claims(self, path: str, head: str) -> float:
        return 1.0 if path.lower().endswith(".ipynb") and '"' in head else 0.0

    def read(self, source: Source, project: Project) -> Document:
        try:
            root = _json.parse(source.text)
        except TreeError as error:
            return Document(
                format=self.name, skipped=f"not a notebook: {error} (line {error.line})"
            )
        listed = root.get("cells")
        if listed is None or listed.kind != "list":
            return Document(format=self.name, skipped="not a notebook: it has no cells")
        language = _language(root)
        if not _PYTHON.match(language):
            return Document(format=self.name, skipped=f"a notebook in {language}")
        cells = Cells()
        for number, cell in enumerate(listed.items, 1):
            body = cell.get("source")
            if cell.text("cell_type") == "code" and body is not None:
                cells.add(number, body)
        module = Source(source.path, "".join(cells.text))
        found = PythonFormat().read(module, project)
        made: Document = replace(
            found,
            format=self.name,
            templates=tuple(replace(cells.placed(t), writable=False) for t in found.templates),
            requests=tuple(self.request(cells.placed(r)) for r in found.requests),
            suppressions=tuple(_suppressions(found, cells, source)),
            notes=(*found.notes, *cells.notes),
            named=tuple(cells.begins),
            editable=False,
        )
        return made

    @staticmethod
    def request(found: Any) -> Any:
        if found.template is None:
            return found
        return replace(found, template=replace(found.template, writable=False))


def _suppressions(found: Document, cells: Cells, source: Source) -> Iterator[Suppression]:
    for one in found.suppressions:
        where = cells.place(one.slice)
        yield replace(one, slice=where, line=source.position(where.start).line)


def _language(root: Node) -> str:
    for path in (("metadata", "kernelspec", "language"), ("metadata", "language_info", "name")):
        node = root.at(*path)
        if node is not None and node.value:
            return node.value
    return "python"


FORMATS = [Notebook()]
