"""`agentkv lint`: find, price and fix prompt layouts that break reuse, in source and templates.

    sources -> formats -> documents (templates, requests) -> rules -> findings -> fixes -> output

A format reads files and knows no rule; a rule reads documents and knows no format. Nothing of the
linted project is imported or run, and nothing here needs the network, torch or LangChain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv.lint.run import lint

__all__ = ["lint"]


def __getattr__(name: str) -> Any:
    if name == "lint":
        from agentkv.lint.run import lint

        return lint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
