"""The capacity curve in a terminal: hit rates by size, the policies beside each other."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentkv.trace.output import words
from agentkv.trace.output.console import blocks
from agentkv.trace.replay import Curve, Point

_BAR = 20


def write(curve: Curve, out: Console) -> None:
    requests = words.plural(curve.requests, "request")
    prompt = words.plural(curve.prompt_tokens, "prompt token")
    out.print(Text(f"{requests}, {prompt}; {words.count(curve.distinct)} of them distinct"))
    out.print()
    policies = list(dict.fromkeys(p.policy for p in curve.points if p.size is not None))
    sizes = sorted({p.size for p in curve.points if p.size is not None})
    found = {(p.policy, p.size): p for p in curve.points}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("pool", justify="right", no_wrap=True)
    table.add_column("of all", justify="right", no_wrap=True)
    for policy in policies:
        table.add_column(policy, justify="right", no_wrap=True)
    drawn = out.width >= 40 + 12 * len(policies) + _BAR
    if drawn:
        table.add_column("best", no_wrap=True)
    for size in sizes:
        points = [p for policy in policies if (p := found.get((policy, size))) is not None]
        best = max(p.rate for p in points)
        row = [Text(f"{words.short(size)} tokens"), Text(_share(points[0]), "dim")]
        for policy in policies:
            point = found.get((policy, size))
            style = "bold" if point is not None and point.rate == best else ""
            row.append(Text(words.percent(point.rate) if point else "", style))
        table.add_row(*row, *([_bar(best, out)] if drawn else []))
    ceiling = [Text("unlimited"), Text("100 %", "dim")]
    ceiling += [Text(words.percent(curve.ceiling)) for _ in policies]
    table.add_row(*ceiling, *([_bar(curve.ceiling, out)] if drawn else []))
    out.print(table)
    out.print()
    out.print(Text("Share of prompt tokens that the cache served.", "dim"))
    if curve.capped:
        out.print(
            Text("The unlimited cache had to forget to stay within memory: its rate is too low.")
        )


def _share(point: Point) -> str:
    return "" if point.share is None else words.percent(point.share)


def _bar(rate: float, out: Console) -> Text:
    full, rest = ("█", "·") if blocks(out) else ("#", ".")
    n = round(rate * _BAR)
    return Text(full * n, "blue").append(rest * (_BAR - n), "dim")
