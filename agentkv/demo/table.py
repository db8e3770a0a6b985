"""The demo's tables: a row a call, then the layouts side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentkv.demo.result import RunResult
from agentkv.report.parts import MissUse, clip

NAMES = {
    "off": "as usually written (layout off)",
    "static_first": "laid out (static_first)",
}
SNIPPET = 34


def calls_table(run: RunResult) -> Table:
    """One row for each call."""
    table = Table(
        title=f"Agent {NAMES.get(run.layout, run.layout)}", title_justify="left", box=SIMPLE
    )
    chose = any(row.tools for row in run.calls)
    table.add_column("conversation")
    for name in ("turn", "prompt", "cached", "", "computed", "TTFT ms"):
        table.add_column(name, justify="right", no_wrap=True)
    if chose:
        table.add_column("the model's step", no_wrap=True)
    table.add_column("why the rest was computed", overflow="fold")
    before = None
    for row in run.calls:
        report = row.report
        if before is not None and row.conversation != before:
            table.add_section()
        table.add_row(
            escape(row.conversation) if row.conversation != before else "",
            str(row.turn),
            f"{report.prompt_tokens:,}",
            f"{report.cached_tokens:,}",
            _share(report.cached_tokens, report.prompt_tokens),
            f"{report.computed_tokens:,}",
            f"{row.ttft_ms:,.0f}",
            *([escape(", ".join(row.tools)) or "answer"] if chose else []),
            escape(why(row.miss)),
        )
        before = row.conversation
    return table


def why(miss: MissUse | None) -> str:
    """A miss in one line: the reason, the segment, and what stood there before and now."""
    if miss is None:
        return "all but the last token was cached"
    text = miss.reason + (f" in {miss.segment}" if miss.segment else "")
    if miss.reason in ("first_call", "appended"):
        return text
    if miss.reason in ("tool_order", "tool_changed") and miss.detail:
        return f"{text}: {clip(miss.detail, 2 * SNIPPET)}"
    if miss.was is not None or miss.now is not None:
        text += f": {_quote(miss.was)} -> {_quote(miss.now)}"
    elif miss.detail:
        text += f": {clip(miss.detail, 2 * SNIPPET)}"
    return text


def totals_table(runs: Sequence[RunResult]) -> Table:
    """The totals side by side, and the ratio of the first to the last run."""
    table = Table(title="Totals", title_justify="left", box=SIMPLE)
    table.add_column("")
    for run in runs:
        table.add_column(run.layout, justify="right")
    if len(runs) > 1:
        table.add_column("times less", justify="right")

    def line(name: str, values: Sequence[float], form: str, *, ratio: bool = False) -> None:
        cells = [form.format(v) for v in values]
        if len(runs) > 1:
            cells.append(f"{values[0] / values[-1]:.1f}x" if ratio and values[-1] else "")
        table.add_row(name, *cells)

    line("model calls", [len(r.calls) for r in runs], "{:,}")
    if any(row.tools for r in runs for row in r.calls):
        line("of them tool calls", [sum(bool(row.tools) for row in r.calls) for r in runs], "{:,}")
    if any(r.refused for r in runs):
        line("refused: longer than the context", [r.refused for r in runs], "{:,}")
    line("prompt tokens", [r.prompt_tokens for r in runs], "{:,}")
    line("cached tokens", [r.cached_tokens for r in runs], "{:,}")
    line("hit rate", [100 * r.hit_rate for r in runs], "{:.1f} %")
    lowest = [r.lowest_hit() for r in runs]
    if all(value is not None for value in lowest):
        line("lowest, from the second call on", [100 * (v or 0.0) for v in lowest], "{:.1f} %")
    computed = [r.prompt_tokens - r.cached_tokens for r in runs]
    line("computed tokens", computed, "{:,}", ratio=True)
    # The model chooses its steps, so the runs may differ in their number of calls.
    calls = [max(1, len(r.calls)) for r in runs]
    line(
        "computed tokens a call",
        [c / n for c, n in zip(computed, calls, strict=True)],
        "{:,.0f}",
        ratio=True,
    )
    line("TTFT, median, ms", [r.ttft_ms_median for r in runs], "{:,.0f}", ratio=True)
    line("wall, s", [r.wall_s for r in runs], "{:.1f}", ratio=True)
    return table


def print_runs(runs: Sequence[RunResult]) -> None:
    """All tables to stdout, not squeezed to 80 columns when piped into a file."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 140))
    for run in runs:
        console.print(calls_table(run))
    console.print(totals_table(runs))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def _quote(text: str | None) -> str:
    if text is None:
        return "nothing"
    return f'"{clip(" ".join(text.split()), SNIPPET)}"'
