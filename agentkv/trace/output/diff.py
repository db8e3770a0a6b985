"""Two logs in a terminal: the rates, the causes that came and went, and what moved in the prompts."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentkv.trace.diff import Changed, LogDiff
from agentkv.trace.layouts import LayoutChange
from agentkv.trace.output import words
from agentkv.trace.output.bars import Bar, draw
from agentkv.trace.output.console import blocks
from agentkv.trace.output.difference import one_line
from agentkv.trace.output.terminal import compared, hanging
from agentkv.trace.report import TraceReport

_STATES = {"new": "red", "grown": "red", "same": "dim", "shrunk": "green", "gone": "green"}
_SHOWN = 8


def write(d: LogDiff, names: tuple[str, str], out: Console) -> None:
    """`names`: of the two logs."""
    a, b = (one_line(n, 60) for n in names)
    out.print(Text(f"{a} → {b}", "bold"))
    out.print()
    draw([_bar("before", d.before), _bar("after", d.after)], out)
    out.print()
    for sentence in d.why:
        out.print(Text(one_line(sentence, 400), "yellow"))
    if not d.worse:
        out.print(Text("The second log is not worse than the first.", "green"))
    if d.causes:
        out.print()
        out.print(_causes(d, out.width))
    if d.layout:
        out.print()
        out.print(Text("What changed in the prompts", "bold"))
        for change in d.layout[:_SHOWN]:
            _layout(change, out)
        if len(d.layout) > _SHOWN:
            out.print(Text(f"  and {len(d.layout) - _SHOWN} more", "dim"))
    new = next((c for c in d.causes if c.state in ("new", "grown")), None)
    if new is not None:
        e = new.cause.worst
        out.print()
        place = f"{one_line(e.where.file, 60)}:{e.where.line}"
        out.print(Text(f"Worst call of {_name(new)}: {place}", "dim"))
        for line in compared(e.before, e.was, e.now, out.width):
            out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        if new.cause.advice:
            out.print(
                hanging("→" if blocks(out) else "->", new.cause.advice, indent=4, style="green")
            )


def _bar(name: str, r: TraceReport) -> Bar:
    said = f"{words.plural(r.requests, 'request')}, {words.short(r.prompt_tokens)} tokens"
    return Bar(name, r.rates.now, said, lost=max(0.0, r.rates.ceiling - r.rates.now))


def _name(c: Changed) -> str:
    return one_line(f"{c.cause.rule} {c.cause.name}" if c.cause.rule else c.cause.name, 60)


def _causes(d: LogDiff, width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("lost before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("cause", overflow="fold")
    if width >= 72:
        table.add_column("where", overflow="fold")
        table.add_column("tokens", justify="right", no_wrap=True)
    for c in d.causes:
        row = [
            Text(c.state, _STATES[c.state]),
            Text(words.percent(c.before)),
            Text(words.percent(c.after)),
            Text(_name(c)),
        ]
        if width >= 72:
            row.append(Text(one_line(c.cause.segment, 30)))
            row.append(Text(f"{c.tokens_after - c.tokens_before:+,}", "dim"))
        table.add_row(*row)
    return table


def _layout(c: LayoutChange, out: Console) -> None:
    name = one_line(c.name_now or c.name_was or "block", 40)
    if c.kind == "swapped":
        more = c.behind_now > c.behind_was
        said = (
            f"now stands behind {words.count(round(c.behind_now))} tokens of changing text"
            if more
            else "no longer stands behind changing text"
        )
        if c.other:
            said += f" ({one_line(c.other, 30)})"
        style = "red" if more else "green"
    elif c.kind == "order":
        said, style = f"stands elsewhere, now near {one_line(c.other or '', 30)}", "yellow"
    elif c.kind == "changed":
        said, style = f"was reworded: {c.tokens_was:,} to {c.tokens_now:,} tokens", "yellow"
    elif c.kind == "added":
        said, style = f"is new: {words.plural(c.tokens_now, 'token')}", "yellow"
    else:
        said, style = f"is gone: {words.plural(c.tokens_was, 'token')}", "yellow"
    text = Text(f"  {name} ", "bold").append(said, f"not bold {style}")
    out.print(text.append(f", in {words.plural(c.calls, 'call')}", "not bold dim"))
    if c.was is not None or c.now is not None:
        for line in compared(None, c.was, c.now, out.width):
            out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    elif c.text:
        shown = one_line(c.text, max(out.width - 8, 20))
        out.print(Text(f"    {shown}", "dim"), no_wrap=True, overflow="ellipsis", crop=True)
