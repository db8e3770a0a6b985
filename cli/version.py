"""`agentkv version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from agentkv.cli.output import Json, print_json

_PARTS = ("langchain-core", "torch", "transformers", "tokenizers", "triton")


def version(json: Json = False) -> None:
    """Print the versions of agentkv and of what it runs on."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PARTS:
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            found[name] = None
    if json:
        print_json({"schema": 1, "agentkv": installed("agentkv"), "parts": found})
        return
    print(f"agentkv {installed('agentkv')}")
    for name, number in found.items():
        print(f"  {name} {number or '(not installed)'}")
