"""Facts that a name suggests."""

from __future__ import annotations

from functools import lru_cache

from agentkv.lint import names
from agentkv.lint.formats.python.facts import UNKNOWN, Facts


@lru_cache(maxsize=20_000)
def guess(name: str) -> Facts:
    """Level and traits by the dictionary of names; never `known`."""
    if not name:
        return Facts()
    level, traits = names.guess(name)
    return Facts(level, traits, f"name `{name}`", False)


def guess_element(name: str) -> Facts:
    """Facts that the name of a loop's variable suggests: there a bare `name` is anything's name."""
    return UNKNOWN if name == "name" else guess(name)
