"""What to say when `langchain`, which is optional, is not there."""

from __future__ import annotations


def missing(name: str) -> ImportError:
    """The error for a plug-in that needs langchain's agents."""
    return ImportError(
        f"{name} needs langchain's agents, which are not installed. "
        'Install them with: pip install "agentkv[langchain]"'
    )
