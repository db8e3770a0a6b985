"""What commands share when they print."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def size(n: float) -> str:
    """Bytes in a unit that people read: 272.6 MB."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while n >= 1000 and len(units) > 1:
        n /= 1000
        del units[0]
    return f"{n:.0f} B" if units[0] == "B" else f"{n:.1f} {units[0]}"
