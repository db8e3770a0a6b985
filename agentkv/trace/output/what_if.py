"""What-if in a terminal: the log as it is, then each mending, on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from agentkv.trace.output import words
from agentkv.trace.output.bars import Bar, draw
from agentkv.trace.whatif import Row


def write(rows: Sequence[Row], ceiling: float | None, out: Console) -> None:
    """`rows`: as `what_if` gives them. `ceiling`: of the log, None when it was not computed."""
    bars = [
        Bar(
            row.fix or "now",
            row.rate,
            f"{words.short(row.computed_tokens)} computed: {row.words}",
        )
        for row in rows
    ]
    if ceiling is not None:
        bars.append(Bar("ceiling", ceiling, "all that an earlier call held"))
    draw(bars, out)
    out.print()
    if len(rows) == 1:
        out.print(Text("No cause of this log has a mending that could be tried.", "dim"))
    else:
        said = "Each is a replay of a copy, in tokens of its own prompts; the log itself is not changed."
        out.print(Text(said, "dim"))


def as_dict(rows: Sequence[Row], ceiling: float | None) -> dict[str, Any]:
    return {"schema": 1, "rows": [row.to_dict() for row in rows], "ceiling": ceiling}
