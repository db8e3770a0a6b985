"""A template filled in with made-up values, before and after a fix.

Jinja is rendered in its immutable sandbox, with text for every name and a limit in time and size.
All other syntaxes are filled in here by substitution; nothing is ever evaluated.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentkv.lint.source import Source
from agentkv.lint.template import Hole, Part, Piece, Template, Text

SECONDS = 2.0
MOST = 1 << 20


class Unfillable(ValueError):
    """Why a template cannot be filled in."""


def filled(source: Source, template: Template) -> str | None:
    """The template's text with made-up values; None where it has no variables."""
    out: list[str] = []
    any_hole = False
    for part in template.parts:
        if part.placeholder:
            continue
        any_hole = any_hole or any(isinstance(p, Hole) for p in part.pieces)
        if template.syntax == "jinja" and source.path.rpartition(".")[2] not in (
            "py",
            "json",
            "yaml",
            "yml",
        ):
            raw = _raw(source, part)
            if raw is not None:
                out.append(render(raw))
                continue
        out.append(_substituted(part.pieces))
    return "\n".join(out) if any_hole else None


def _raw(source: Source, part: Part) -> str | None:
    where = [p.slice for p in part.pieces]
    if not where or any(w is None for w in where):
        return None
    first, last = where[0], where[-1]
    assert first is not None and last is not None
    return source.text[first.start : last.end]


def _substituted(pieces: Sequence[Piece]) -> str:
    """Holes replaced by a value that is made from how they are written."""
    out: list[str] = []
    for piece in pieces:
        if isinstance(piece, Text):
            out.append(piece.value)
        elif piece.inner:
            out.append(_substituted(piece.inner))
        else:
            out.append(value(piece.expr))
    return "".join(out)


def value(expr: str) -> str:
    return "«" + re.sub(r"\W+", "-", expr).strip("-") + "»"


# -- Jinja ----------------------------------------------------------------------------------------


class _Value(str):
    """Text that stands for any value: its attributes and items are text of the same kind, so that
    loops run twice and conditions hold."""

    unsafe_callable = False
    alters_data = False

    def __getattr__(self, name: str) -> _Value:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Value(f"{self}-{name}")

    def __getitem__(self, key: Any) -> Any:
        return _Value(f"{self}-{key}")

    def __iter__(self) -> Iterator[Any]:
        return iter([_Value(f"{self}-a"), _Value(f"{self}-b")])

    def __call__(self, *args: Any, **kwargs: Any) -> _Value:
        return _Value(f"{self}()")

    def items(self) -> list[tuple[Any, Any]]:
        return [(_Value("k1"), _Value("v1")), (_Value("k2"), _Value("v2"))]


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with nothing that makes long texts out of short ones."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or any(isinstance(x, (str, list, tuple)) for x in (left, right)):
            raise Unfillable(f"it computes with {operator}.")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _GROWS and super().is_safe_attribute(obj, attr, value)


_GROWS = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map"})


def _environment() -> ImmutableSandboxedEnvironment:
    made = _Sandbox(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"],
    )
    for name in ("lipsum", "range"):
        made.globals.pop(name, None)
    for name in ("center", "indent", "wordwrap", "format", "random"):
        made.filters[name] = lambda x, *a, **k: x
    return made


def render(text: str) -> str:
    """A Jinja text with a value for every name that it reads. Raises `Unfillable`."""
    env = _environment()
    try:
        tree = env.parse(text)
    except TemplateError as error:
        raise Unfillable(f"Jinja says {error.message}") from error
    for kind in (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends):
        if next(tree.find_all(kind), None) is not None:
            raise Unfillable("it takes in other files.")
    called = {n.name for n in tree.find_all(nodes.Filter) if n.name not in env.filters}
    for name in called:
        env.filters[name] = lambda x, *a, **k: x
    for test in {n.name for n in tree.find_all(nodes.Test) if n.name not in env.tests}:
        env.tests[test] = lambda x, *a, **k: True
    try:
        names = {n: _Value(f"«{n}»") for n in meta.find_undeclared_variables(tree)}
    except TemplateError as error:
        raise Unfillable(f"Jinja says {error.message}") from error
    found: list[str] = []
    failed: list[BaseException] = []

    def work() -> None:
        size = 0
        try:
            for chunk in env.from_string(text).generate(**names):
                size += len(chunk)
                if size > MOST:
                    raise Unfillable("it grows without end.")
                found.append(chunk)
        except BaseException as raised:  # reported by the caller's thread
            failed.append(raised)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(SECONDS)
    if worker.is_alive():
        raise Unfillable("it takes too long to render.")
    if failed:
        cause = failed[0]
        if isinstance(cause, Unfillable):
            raise cause
        raise Unfillable(f"Jinja says {type(cause).__name__}: {cause}")
    return "".join(found)
