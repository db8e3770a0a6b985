"""Prompts in Python source: f-strings, format strings, constants, framework templates, API calls."""

from __future__ import annotations

from agentkv.lint.formats.base import Format
from agentkv.lint.formats.python.reader import PythonFormat

FORMATS: list[Format] = [PythonFormat()]
