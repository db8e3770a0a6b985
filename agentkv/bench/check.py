"""What every bench prints: rows, and targets that were met or not."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Check:
    """One claim: what was measured, what was asked for, and whether it holds."""

    name: str
    value: str
    target: str
    ok: bool


@dataclass(slots=True)
class Report:
    """The outcome of one bench: a table of rows (one dict each, same keys) and its checks."""

    bench: str
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def check(self, name: str, value: str, target: str, ok: bool) -> None:
        self.checks.append(Check(name, value, target, ok))

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "bench": self.bench,
            "ok": self.ok,
            "rows": self.rows,
            "checks": [asdict(check) for check in self.checks],
            "notes": self.notes,
        }

    def print(self, console: Console) -> None:
        if self.rows:
            console.print(rows_table(self.title, self.rows))
        if self.checks:
            table = Table(title=f"{self.bench}: targets", title_justify="left", box=SIMPLE)
            for column in ("what", "measured", "target", ""):
                table.add_column(column)
            for check in self.checks:
                verdict = "[green]ok[/]" if check.ok else "[bold red]FAIL[/]"
                table.add_row(check.name, check.value, check.target, verdict)
            console.print(table)
        for note in self.notes:
            console.print(note, style="dim", markup=False, highlight=False)


def rows_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """A rich table of dicts with the same keys: numbers to the right, one or two decimals."""
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for key, value in rows[0].items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        table.add_column(key.replace("_", " "), justify="right" if number else "left")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "[green]ok[/]" if value else "[bold red]FAIL[/]"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value).replace("[", r"\[")


def emit(reports: Sequence[Report], *, as_json: bool) -> int:
    """Print the reports (tables, or one JSON object) to stdout. Returns the exit status."""
    if as_json:
        found = [report.to_json() for report in reports]
        body = found[0] if len(found) == 1 else {"schema": SCHEMA, "benches": found}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
    else:
        console = wide_console()
        for report in reports:
            report.print(console)
    return 0 if all(report.ok for report in reports) else 1


def wide_console() -> Console:
    """A console on stdout that does not squeeze a table to 80 columns when piped into a file."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 132))


def progress(text: str) -> None:
    """One line of progress, to stderr."""
    print(text, file=sys.stderr, flush=True)


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))
