"""The Python format: from a file to a document."""

from __future__ import annotations

import ast
from pathlib import Path

from agentkv.lint.formats.base import Project
from agentkv.lint.formats.python.comments import suppressions
from agentkv.lint.formats.python.document import document
from agentkv.lint.formats.python.program import Program
from agentkv.lint.formats.python.shapes import has_evidence
from agentkv.lint.source import BOM, Source
from agentkv.lint.template import Document

_NAME = "python"


class PythonFormat:
    """`.py` and `.pyi` files. Nothing of them is imported or run."""

    name = _NAME

    def claims(self, path: str, head: str) -> float:
        suffix = Path(path).suffix.lower()
        if suffix in (".py", ".pyi", ".pyw"):
            return 1.0
        first = head.split("\n", 1)[0]
        return 0.9 if first.startswith("#!") and "python" in first else 0.0

    def alone(self, text: str) -> bool:
        """Whether the text by itself decides that there is no prompt, whatever other files hold."""
        return not has_evidence(text)

    def read(self, source: Source, project: Project) -> Document:
        notes = suppressions(source.text)
        sinks = [s.rpartition(".")[2] for s in project.sinks]
        if not has_evidence(source.text) and not any(s in source.text for s in sinks):
            return Document(format=_NAME, suppressions=notes)
        program = _program(project, source)
        path = _path(source, project)
        module = program.load(path, source.text)
        if module is None:
            return Document(format=_NAME, suppressions=notes, skipped=_why(source.text))
        try:
            return document(program, module, notes)
        except RecursionError:
            return Document(
                format=_NAME, suppressions=notes, skipped="nested too deeply to be read"
            )


def _path(source: Source, project: Project) -> Path:
    if source.path == "-":
        return project.root / "<stdin>.py"
    path = Path(source.path)
    return path if path.is_absolute() or path.exists() else project.root / path


def _program(project: Project, source: Source) -> Program:
    """What was read of the project so far. When this file has changed since, what was concluded is
    dropped; modules that did not change stay parsed."""
    program = project.notes.get(_NAME)
    if isinstance(program, Program):
        key = str(_path(source, project))
        known = program.modules.get(key)
        if key not in program.modules or (known is not None and known.text == source.text):
            return program
        program = program.without(key)
    else:
        program = Program(project)
    project.notes[_NAME] = program
    return program


def _why(text: str) -> str:
    try:
        ast.parse(text.removeprefix(BOM))
    except SyntaxError as error:
        return f"not valid Python: {error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"not valid Python: {error}"
    return "cannot be read as Python"
