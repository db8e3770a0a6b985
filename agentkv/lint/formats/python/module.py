"""One module of the project: its tree, imports, functions and classes."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.lint.formats.python.bits import Bits, Lit
from agentkv.lint.formats.python.facts import Where
from agentkv.lint.formats.python.literals import Chunk, Field, Literal, Unreadable, chunks, scan
from agentkv.lint.formats.python.offsets import Offsets
from agentkv.lint.source import BOM

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(slots=True)
class Function:
    """A function; `owner` is `path:Class.name`."""

    owner: str
    node: FunctionNode
    cls: str | None = None
    decorators: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.owner.rpartition(":")[2].rpartition(".")[2]


@dataclass(slots=True)
class Class:
    owner: str
    node: ast.ClassDef
    bases: tuple[str, ...] = ()
    _attributes: dict[str, list[tuple[ast.expr, str | None]]] | None = None

    @property
    def attributes(self) -> dict[str, list[tuple[ast.expr, str | None]]]:
        """`x = value` in its body and `self.x = value` in its methods: the value, and the method's
        owner (None: class body)."""
        if self._attributes is None:
            self._attributes = {}
            for node in self.node.body:
                self._assigned(node)
        return self._attributes

    def _assigned(self, node: ast.stmt) -> None:
        assert self._attributes is not None
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and node.value is not None:
                    self._attributes.setdefault(target.id, []).append((node.value, None))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name, value in _selves(node):
                pairs = self._attributes.setdefault(name, [])
                pairs.append((value, f"{self.owner}.{node.name}"))


class Module:
    """Raises SyntaxError (or ValueError) for a text that is no Python."""

    def __init__(self, path: str, text: str, dotted: str = "") -> None:
        shift = 1 if text.startswith(BOM) else 0
        self.path = path
        self.text = text
        self.dotted = dotted
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in the user's strings
            self.tree = ast.parse(text[shift:])
        self.offsets = Offsets(text, shift)
        self.imports: dict[str, str] = {}
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, Class] = {}
        self.stars: list[str] = []
        self.fstrings: list[tuple[int, int]] | None = None
        self.seeded = bool(re.search(r"\brandom\.seed\(|\bseed_everything\(|\bset_seed\(", text))
        self._collect(self.tree.body, "", None)

    def where(self, node: ast.expr | ast.stmt) -> Where:
        return Where(self.path, self.offsets.start(node), self.offsets.end(node))

    def code(self, node: ast.expr | ast.stmt) -> str:
        return self.text[self.offsets.start(node) : self.offsets.end(node)]

    def _collect(self, body: list[ast.stmt], prefix: str, cls: Class | None) -> None:
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{node.name}"
                found = Function(
                    f"{self.path}:{name}",
                    node,
                    cls.owner if cls else None,
                    tuple(ast.unparse(d) for d in node.decorator_list),
                )
                self.functions[name] = found
                self._collect(node.body, f"{name}.", None)
            elif isinstance(node, ast.ClassDef):
                name = f"{prefix}{node.name}"
                one = Class(f"{self.path}:{name}", node, tuple(ast.unparse(b) for b in node.bases))
                self.classes[name] = one
                self._collect(node.body, f"{name}.", one)
            elif isinstance(
                node, ast.If | ast.Try | ast.With | ast.For | ast.While | ast.AsyncWith
            ):
                for part in ("body", "orelse", "finalbody"):
                    self._collect(getattr(node, part, []), prefix, cls)
                for handler in getattr(node, "handlers", []):
                    self._collect(handler.body, prefix, cls)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    self.imports[alias.asname] = alias.name
                else:
                    self.imports[alias.name.split(".")[0]] = alias.name.split(".")[0]
            return
        base = node.module or ""
        if node.level:
            # `from . import x` in a.b.c is a.b; an __init__ is its own package.
            parts = self.dotted.split(".") if self.dotted else []
            up = node.level - (1 if self.path.endswith("__init__.py") else 0)
            parts = parts[: len(parts) - up] if up else parts
            base = ".".join([*parts, base] if base else parts)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(base)
            else:
                self.imports[alias.asname or alias.name] = (
                    f"{base}.{alias.name}" if base else alias.name
                )

    # -- strings ---------------------------------------------------------------------------------

    def literals(self, node: ast.expr) -> list[Literal] | None:
        """The string tokens of a constant or an f-string."""
        try:
            return scan(self.text, self.offsets.start(node), self.offsets.end(node))
        except (Unreadable, ValueError, KeyError, IndexError):
            return None

    def constant(self, node: ast.Constant) -> Bits:
        """The bits of a string constant."""
        literals = self.literals(node)
        value = str(node.value)
        if literals is not None:
            parts = list(chunks(literals))
            if all(isinstance(p, Chunk) for p in parts) and value == "".join(
                p.value for p in parts if isinstance(p, Chunk)
            ):
                return tuple(self.lit(p) for p in parts if isinstance(p, Chunk))
        return (Lit(value),) if value else ()

    def lit(self, chunk: Chunk) -> Lit:
        where = Where(self.path, chunk.start, chunk.end)
        if len(chunk.value) == chunk.end - chunk.start:
            return Lit(chunk.value, where)
        return Lit(chunk.value, where, tuple(chunk.offset(i) for i in range(len(chunk.value))))

    def formatted(self, node: ast.JoinedStr) -> list[Lit | tuple[ast.FormattedValue, Where | None]]:
        """Literal runs and fields of an f-string, in order."""
        fields = [v for v in node.values if isinstance(v, ast.FormattedValue)]
        literals = self.literals(node)
        if literals is not None:
            parts = list(chunks(literals))
            if self._agree(node, parts):
                rest = iter(fields)
                out: list[Lit | tuple[ast.FormattedValue, Where | None]] = []
                for p in parts:
                    if isinstance(p, Chunk):
                        out.append(self.lit(p))
                    else:
                        out.append((next(rest), Where(self.path, p.start, p.end)))
                return out
        return [
            (v, None) if isinstance(v, ast.FormattedValue) else Lit(str(v.value))
            for v in node.values
            if isinstance(v, ast.FormattedValue | ast.Constant)
        ]

    @staticmethod
    def _agree(node: ast.JoinedStr, parts: list[Chunk | Field]) -> bool:
        """Whether the scan saw what the parser saw."""
        seen: list[str | None] = [""]
        for p in parts:
            if isinstance(p, Chunk):
                seen[-1] = (seen[-1] or "") + p.value
            else:
                seen += [None if p.debug else "", ""]
        expected: list[str] = [""]
        for v in node.values:
            if isinstance(v, ast.Constant):
                expected[-1] += str(v.value)
            else:
                expected += ["", ""]
        if any(isinstance(p, Field) and p.debug for p in parts):
            return len(seen) == len(expected)  # `{x=}` puts its own text before the field
        return [s or "" for s in seen] == expected


def _selves(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """`self.x = value` anywhere in a method."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            targets, value = inner.targets, inner.value
        elif isinstance(inner, ast.AnnAssign | ast.AugAssign) and inner.value is not None:
            targets, value = [inner.target], inner.value
        else:
            continue
        for target in targets:
            match target:
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr):
                    yield attr, value
