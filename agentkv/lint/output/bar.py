"""A prompt's layout as a bar: what stays and what changes, in rendering order, to scale."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.lint.output.style import Style

_LOOKS = {
    # level: (block, without blocks, colour)
    "build": ("█", "#", "green"),
    "deploy": ("▇", "=", "green"),
    "tenant": ("▅", "t", "cyan"),
    "user": ("▅", "u", "cyan"),
    "session": ("▃", "s", "blue"),
    "turn": ("▂", "-", "yellow"),
    "call": ("▁", ".", "red"),
    "unknown": ("░", "?", "magenta"),
}
_SHOWN = {"build": "static"}

Runs = Sequence[tuple[str, int]]


def bars(before: Runs, after: Runs, style: Style) -> list[str]:
    """Lines for both layouts on one scale, and what the blocks mean."""
    width = max(20, min(style.width - 24, 64))
    most = max(sum(n for _, n in before), sum(n for _, n in after), 1)
    lines = []
    for name, runs in (("before", before), ("after", after)):
        if runs:
            bar = _bar(runs, most, width, style)
            lines.append(f"{name:>6} {bar} {_reused(runs):,} of {sum(n for _, n in runs):,} kept")
    levels = dict.fromkeys(level for level, _ in (*before, *after))
    at = 0 if style.blocks else 1
    legend = "  ".join(
        f"{style.paint(_LOOKS[v][at], _LOOKS[v][2])} {_SHOWN.get(v, v)}" for v in levels
    )
    return [*lines, f"       {legend}"] if lines else []


def _reused(runs: Runs) -> int:
    """Tokens before the first thing that changes within a deployment."""
    kept = 0
    for level, tokens in runs:
        if level not in ("build", "deploy"):
            break
        kept += tokens
    return kept


def _bar(runs: Runs, most: int, width: int, style: Style) -> str:
    """Each run is at least one block, so that a clock of five tokens is seen."""
    cells = [max(1, round(n * width / most)) for _, n in runs]
    while sum(cells) > width and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    at = 0 if style.blocks else 1
    return "".join(
        style.paint(_LOOKS[level][at] * n, _LOOKS[level][2])
        for (level, _), n in zip(runs, cells, strict=True)
    )
