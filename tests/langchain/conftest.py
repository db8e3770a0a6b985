"""Marks for inherited tests, which have no decorators of their own."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """A class names those of its inherited tests that are slow."""
    cls = item.cls if isinstance(item, pytest.Function) else None
    if item.name in getattr(cls, "slow", ()):
        item.add_marker(pytest.mark.slow)
