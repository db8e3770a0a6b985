"""A report in a terminal: the rates, what was lost and to what, and where to look."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentkv.trace.output import words
from agentkv.trace.output.bars import Bar, draw
from agentkv.trace.output.console import blocks
from agentkv.trace.output.difference import difference, one_line, visible, visible_marked
from agentkv.trace.report import CauseRow, Example, TraceReport

_DETAILED = 5
"""Causes that are shown with an example, unless asked for more."""


def write(
    report: TraceReport, out: Console, *, names: Sequence[str] = (), top: int = _DETAILED
) -> None:
    """`names`: of the logs, for the first line. `top`: causes with examples."""
    out.print(_head(report, names))
    if not report.requests:
        _end(report, out)
        return
    out.print()
    draw(_rates(report), out)
    out.print()
    if report.causes:
        out.print(_table(report, out.width))
        out.print()
        for cause in report.causes[: max(top, 0)]:
            _cause(cause, out)
            out.print()
    else:
        out.print(Text(words.nothing_lost(report), "green" if report.appended else ""))
        out.print()
    if (more := words.why_unserved(report)) is not None:
        out.print(more)
    _end(report, out)


def _head(report: TraceReport, names: Sequence[str]) -> Text:
    said = [
        words.plural(report.requests, "request"),
        words.plural(report.sessions, "session"),
        f"{'' if report.exact else 'about '}{words.plural(report.prompt_tokens, 'prompt token')}",
    ]
    text = Text(visible(words.files(names)) if names else "trace report", style="bold")
    text.append("\n" + ", ".join(said), style="not bold")
    text.append(f"\ncache {report.cache}; tokenizer {report.tokenizer}", style="not bold dim")
    return text


def _rates(report: TraceReport) -> list[Bar]:
    r = report.rates
    bars = [Bar("now", r.now, "as the log stands", lost=max(0.0, r.ceiling - r.now))]
    if r.fixed is not None:
        bars.append(
            Bar("fixed", r.fixed, "with the causes mended", lost=max(0.0, r.ceiling - r.fixed))
        )
    bars.append(Bar("ceiling", r.ceiling, "all that an earlier call held"))
    m = report.measured
    if m.requests and m.prompt_tokens:
        of = (
            f"by providers, {words.count(m.requests)} of {words.plural(report.requests, 'request')}"
        )
        bars.append(Bar("measured", m.cached_tokens / m.prompt_tokens, of, other=True))
    return bars


def _table(report: TraceReport, width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    table.add_column("tokens lost", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("calls", justify="right", no_wrap=True)
    table.add_column("cause", overflow="fold")
    if width >= 72:
        table.add_column("where", overflow="fold", max_width=max(12, width // 5))
    if width >= 96:
        table.add_column("reason", no_wrap=True)
    for c in report.causes:
        row: list[Text] = [
            Text(words.count(c.tokens_lost)),
            Text(words.percent(c.share)),
            Text(words.count(c.count)),
            _name(c),
        ]
        if width >= 72:
            row.append(Text(one_line(c.segment, 40)))
        if width >= 96:
            row.append(Text(words.reason(c.reason), "dim"))
        table.add_row(*row)
    if len(report.causes) > 1:
        table.add_section()
        total = sum(c.tokens_lost for c in report.causes)
        table.add_row(Text(words.count(total)), Text(""), Text(""), Text("in all", "dim"))
    return table


def _name(c: CauseRow) -> Text:
    text = Text()
    if c.rule:
        text.append(f"{c.rule} ", "bold yellow")
    return text.append(one_line(c.name, 60), "bold")


def _cause(c: CauseRow, out: Console) -> None:
    said = [words.reason(c.reason)]
    if c.value:
        said[0] += f" ({words.value(c.value)})"
    if c.constant:
        said.append(f"the same within a {c.constant}")
    if c.variants > 1:
        said.append(f"{words.count(c.variants)} variants")
    head = _name(c).append(f"  {one_line(c.segment, 40)}: {'; '.join(said)}", "not bold dim")
    out.print(head)
    shown, other = c.worst, c.first
    if shown.was is None and shown.now is None:
        shown, other = other, shown
    if c.worst == c.first:
        _example(shown, "seen", out)
    else:
        _example(shown, "worst" if shown is c.worst else "first", out)
        title = "first" if shown is c.worst else "worst"
        lost = words.plural(other.tokens_lost, "token")
        out.print(Text(f"  {title} {_place(other)}, {lost} lost", "dim"))
    if c.advice:
        arrow = "→" if blocks(out) else "->"
        out.print(hanging(arrow, c.advice, style="green"))


def hanging(mark: str, text: str, *, indent: int = 2, style: str = "dim") -> Padding:
    """A text behind a mark, its further lines below its first word."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style), Text(visible(text)))
    return Padding(grid, (0, 0, 0, indent), expand=False)


def _example(e: Example, title: str, out: Console) -> None:
    at = f"{e.segment}, token {words.count(e.at)}"
    lost = words.plural(e.tokens_lost, "token")
    out.print(Text(f"  {title:<5} {_place(e)} ({at}), {lost} lost", "dim"))
    for line in compared(e.before, e.was, e.now, out.width):
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _place(e: Example) -> str:
    return visible(f"{e.where.file}:{e.where.line}")


def compared(before: str | None, was: str | None, now: str | None, width: int) -> list[Text]:
    """Two lines, `was` and `now`, with what they have in common around what differs. None: no
    text is known, and nothing is shown."""
    if was is None and now is None:
        return []
    d = difference(was or "", now or "")
    lead = (before or "") + d.before
    room = max(width - 10, 20)
    ahead = one_line(lead, room // 3, end=True)
    lines = []
    for name, middle, style in (("was", d.was, "red"), ("now", d.now, "green")):
        shown = visible_marked(middle) if middle else "∅"
        left = max(room - len(ahead), 10)
        if len(shown) > left:
            shown = shown[: left - 1] + "…"
        line = Text(f"    {name}  ", "dim")
        line.append(ahead, "not dim").append(shown, f"not dim bold {style}")
        rest = left - len(shown)
        if rest > 1:
            line.append(one_line(d.after, rest), "not dim")
        lines.append(line)
    return lines


def _end(report: TraceReport, out: Console) -> None:
    healthy = []
    if report.first_calls:
        healthy.append(words.plural(report.first_calls, "first call"))
    if report.appended:
        healthy.append(f"{words.count(report.appended)} that only appended")
    if healthy:
        out.print(Text(f"Healthy: {', '.join(healthy)}.", "dim"))
    if report.evicted_tokens:
        out.print(f"{words.plural(report.evicted_tokens, 'token')} were lost to a full pool.")
    if report.failed:
        out.print(f"{words.plural(report.failed, 'failed request')} left out.")
    for note in report.notes:
        out.print(hanging("note:", one_line(note, 400), indent=0))
    if report.problems:
        bad = ", ".join(f"{words.count(n)} {kind}" for kind, n in report.problems.items())
        out.print(Text(f"Not read: {bad}.", "yellow"))
        for line in report.problem_lines[:5]:
            out.print(hanging("-", one_line(line, 300)))
