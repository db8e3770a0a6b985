"""Wait for files to change, by looking at them: no dependency, any file system."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

State = dict[str, tuple[int, int]]


def changes(
    files: Callable[[], Iterable[Path]],
    *,
    every: float = 0.5,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[list[str]]:
    """Yields the paths that changed, appeared or went, each time some did. `files` is asked anew
    at each look, so that new files are seen."""
    before = state(files())
    while True:
        sleep(every)
        now = state(files())
        if now == before:
            continue
        yield sorted(p for p in before.keys() | now.keys() if before.get(p) != now.get(p))
        before = now


def state(files: Iterable[Path]) -> State:
    """Size and time of change of each file."""
    found: State = {}
    for path in files:
        try:
            stat = os.stat(path)
        except OSError:
            continue
        found[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return found
