"""Formats: from a file to documents. A format is added here, and no rule knows of it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from agentkv.lint.formats.base import Format, Project

__all__ = ["Format", "Project", "detect", "formats"]


@cache
def formats() -> tuple[Format, ...]:
    """Every format: each module of this package may offer `FORMATS`, a list of instances."""
    found: list[Format] = []
    for module in iter_modules(__path__):
        found += getattr(import_module(f"{__name__}.{module.name}"), "FORMATS", [])
    return tuple(sorted(found, key=lambda f: f.name))


def detect(path: str, head: str, *, name: str | None = None) -> Format | None:
    """The format that is surest of a file (None: nobody claims it), or the one called `name`.

    Raises ValueError for a name that no format has.
    """
    if name is not None:
        for one in formats():
            if one.name == name:
                return one
        raise ValueError(f"unknown format {name!r}; known: {', '.join(f.name for f in formats())}.")
    best, sure = None, 0.0
    for one in formats():
        found = one.claims(path, head)
        if found > sure:
            best, sure = one, found
    return best
