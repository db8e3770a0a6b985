"""What parameters are before anybody calls: names, annotations, defaults."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace

from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Param
from agentkv.lint.formats.python.facts import Facts
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.imports import imported
from agentkv.lint.formats.python.module import Function
from agentkv.lint.formats.python.shapes import strong_name
from agentkv.lint.formats.python.values import (
    Cls,
    Obj,
    Thing,
)

_DEPLOY_TYPES = ("Settings", "Config", "Configuration", "AppConfig", "Namespace")


def _service(frame: Base, annotation: ast.expr | None) -> Obj | None:
    """An instance of a class of the project that does things (one that only holds data is not)."""
    match annotation:
        case ast.Constant(value=str(text)) if text.isidentifier():
            annotation = ast.Name(text, ast.Load())
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            annotation = left
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            annotation = inner
    if not isinstance(annotation, ast.Name | ast.Attribute):
        return None
    head = annotation.id if isinstance(annotation, ast.Name) else ""
    known = head in frame.module.classes or head in frame.module.imports
    if head and (not known or head in dir(builtins)):
        return None
    made = frame.value(annotation)
    if not isinstance(made, Cls):
        return None
    cls, module = frame.program.cls(made.owner), frame.program.module_of(made.owner)
    if cls is None or module is None or cls.node.decorator_list:
        return None
    name = made.owner.rpartition(":")[2]
    methods = [f for f in module.functions if f.startswith(f"{name}.") and "__" not in f]
    data = any(b.rpartition(".")[2] in ("BaseModel", "TypedDict", "NamedTuple") for b in cls.bases)
    return Obj(made.owner) if methods and not data else None


def bind_parameters(frame: Base, function: Function) -> None:
    arguments = function.node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for i, arg in enumerate(every):
        if i == 0 and function.cls and arg.arg in ("self", "cls"):
            frame.env[arg.arg] = Obj(function.cls)
            continue
        service = _service(frame, arg.annotation)
        if service is not None:
            frame.env[arg.arg] = service
            continue
        facts = guess(arg.arg)
        kind = ast.unparse(arg.annotation) if arg.annotation is not None else ""
        if kind.rpartition(".")[2] in _DEPLOY_TYPES or kind.endswith(("Settings", "Config")):
            facts = Facts("deploy", why=f"a {kind}")
        facts = replace(facts, why=f"parameter `{arg.arg}`", reads=(arg.arg,))
        frame.env[arg.arg] = Thing(facts, arg.arg, Param(function.owner, arg.arg))
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            frame.env[extra.arg] = Thing(guess(extra.arg).reading(extra.arg), extra.arg)
    # A default that is a prompt is a prompt by its parameter's name.
    defaults = list(
        zip(arguments.args[-len(arguments.defaults) :], arguments.defaults, strict=False)
    )
    defaults = defaults if arguments.defaults else []
    pairs: list[tuple[ast.arg, ast.expr]] = list(defaults)
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d]
    for arg, default in pairs:
        if strong_name(arg.arg) or isinstance(default, ast.JoinedStr):
            base = frame.frame_of_module(frame.module)
            frame.considered(arg.arg, imported(base.value(default)), default)
