"""What the parts of a frame know of each other."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from agentkv.lint.formats.python.facts import Facts, Where
from agentkv.lint.formats.python.module import Class, Function, Module
from agentkv.lint.formats.python.values import Item, Value

if TYPE_CHECKING:
    from agentkv.lint.formats.python.drafts import RequestDraft
    from agentkv.lint.formats.python.frame import Frame
    from agentkv.lint.formats.python.program import Program


class Base:
    """State of a frame, and the steps that its parts take for each other."""

    program: Program
    module: Module
    owner: str
    function: Function | None
    outer: Frame | None
    env: dict[str, Value]
    returned_if: list[Facts]
    """Tests in front of what is returned."""
    returns: list[tuple[Value, ast.AST]]
    yields: list[Item]
    """What a generator gives, in order."""
    loops: list[ast.AST]
    tests: list[tuple[ast.expr, Facts]]
    within: str
    main_guard: bool
    """Inside `if __name__ == "__main__"`."""
    fan: int
    """Inside how many calls that start others together."""
    sent_lists: list[tuple[RequestDraft, ast.expr]]
    """Requests, and the variable that held their messages."""

    def frame_of_module(self, module: Module) -> Frame:
        """The frame of a module's own statements."""
        raise NotImplementedError

    def frame_of(self, function: Function) -> Frame:
        """The frame of a function's body, read with its parameters open."""
        raise NotImplementedError

    def exported(self, module: Module, name: str) -> Value | None:
        """What other modules get by importing a name."""
        raise NotImplementedError

    def run(self, body: list[ast.stmt]) -> bool:
        raise NotImplementedError

    def value(self, node: ast.expr) -> Value:
        raise NotImplementedError

    def test(self, node: ast.expr) -> Facts:
        raise NotImplementedError

    def look(self, name: str) -> Value:
        raise NotImplementedError

    def library(self, dotted: str) -> Value:
        raise NotImplementedError

    def attribute_of(self, cls_owner: str, name: str) -> Value | None:
        raise NotImplementedError

    def iterated(self, source: Value, node: ast.expr) -> Facts:
        raise NotImplementedError

    def concat(
        self, left: Value, right: Value, one: ast.expr, other: ast.expr, *, splice: bool = False
    ) -> Value:
        raise NotImplementedError

    def extended(self, old: Value, more: Value, node: ast.expr) -> Value:
        raise NotImplementedError

    def chained(self, left: Value, right: Value) -> None:
        """`left | right`: what a chain fills a template with."""
        raise NotImplementedError

    def callee(self, func: ast.expr) -> str:
        """The dotted name of what is called."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> Value:
        raise NotImplementedError

    def call_function(
        self, function: Function, args: tuple[Value, ...], kwargs: dict[str, Value], where: Where
    ) -> Value:
        raise NotImplementedError

    def considered(self, name: str, value: Value, node: ast.expr) -> None:
        """A value was given a name: is it a prompt by its looks?"""
        raise NotImplementedError

    def returned(self, value: Value, node: ast.expr) -> None:
        raise NotImplementedError

    def decorated(self, function: Function, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        raise NotImplementedError

    def class_made(self, cls: Class, node: ast.ClassDef) -> None:
        raise NotImplementedError

    def stored(
        self, target: ast.expr, value: Value, node: ast.stmt, *, added: bool = False
    ) -> None:
        """`x[...] = value` or `x.y = value`."""
        raise NotImplementedError

    def deleted(self, target: ast.expr) -> None:
        raise NotImplementedError

    def sent(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> bool:
        """A call with its arguments: record it if it sends a prompt."""
        raise NotImplementedError

    def key_of(self, node: ast.expr) -> str | None:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr):
                return f"self.{attr}"
        return None
