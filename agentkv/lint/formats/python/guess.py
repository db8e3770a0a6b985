"""Facts that a name suggests."""

from __future__ import annotations

from functools import lru_cache

from agentkv.lint import names
from agentkv.lint.formats.python.facts import Facts


@lru_cache(maxsize=20_000)
def guess(name: str) -> Facts:
    """Level and traits by the dictionary of names; never `known`."""
    if not name:
        return Facts()
    level, traits = names.guess(name)
    return Facts(level, traits, f"name `{name}`", False)
