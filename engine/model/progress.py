"""How a slow step tells that it moves: a bar on a terminal, a line elsewhere, always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, units done, units in all); units are bytes or tensors."""


def silent(what: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def console() -> Iterator[Progress]:
    """A rich bar when stderr is a terminal; otherwise one line for each new step."""
    if not sys.stderr.isatty():
        seen: set[str] = set()

        def line(what: str, done: int, total: int) -> None:
            if what not in seen:
                seen.add(what)
                print(f"{what} ...", file=sys.stderr, flush=True)

        yield line
        return

    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def bar(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=max(total, 1))
            bars.update(tasks[what], completed=min(done, total), total=max(total, 1))

        yield bar
