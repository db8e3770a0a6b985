"""Reports in the forms that people and other programs read."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from agentkv.lint.output.style import Style
from agentkv.lint.result import Report

FORMATS = (
    "full",
    "concise",
    "json",
    "jsonl",
    "sarif",
    "github",
    "gitlab",
    "junit",
    "markdown",
)

__all__ = ["FORMATS", "Style", "render"]


def render(report: Report, form: str, style: Style | None = None) -> str:
    """The report as text that ends with a line break. Raises ValueError for an unknown form."""
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; known: {', '.join(FORMATS)}.")
    module = import_module(f"{__name__}.{form}")
    write: Callable[[Report, Style], str] = module.write
    return write(report, style or Style())
