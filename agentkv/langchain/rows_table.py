"""Booked calls as a table for a terminal. rich is loaded only when one is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentkv.langchain.rows import CallRow, Totals
from agentkv.report.view import ended

if TYPE_CHECKING:
    from rich.table import Table


def rows_table(rows: Iterable[CallRow], totals: Totals, *, title: str | None = None) -> Table:
    """One row a call: where it was made, its tokens, and why reuse ended; then the sums."""
    from rich.table import Table
    from rich.text import Text

    out = Table(title=title)
    out.add_column("call", justify="right")
    for name in ("node", "model"):
        out.add_column(name, overflow="fold")
    for name in ("prompt", "cached", "computed", "hit"):
        out.add_column(name, justify="right")
    out.add_column("reuse ended", overflow="fold")
    for number, row in enumerate(rows, 1):
        node = "/".join(part for part in (row.namespace, row.node) if part)
        where = (str(number), Text(node), Text(row.model))
        report = row.report
        if row.kind == "error":
            out.add_row(*where, "", "", "", "", Text(f"failed: {row.error}"))
        elif row.kind == "cancelled":
            out.add_row(*where, "", "", "", "", "cancelled")
        elif row.kind == "response_cache":
            out.add_row(*where, "", "", "", "", "answered by LangChain's response cache")
        elif report is None:
            out.add_row(*where, "?", "?", "?", "?", "")
        elif not report.cached_known:
            out.add_row(*where, f"{report.prompt_tokens:,}", "?", "?", "?", "")
        else:
            out.add_row(
                *where,
                f"{report.prompt_tokens:,}",
                f"{report.cached_tokens:,}",
                f"{report.computed_tokens:,}",
                f"{100 * report.hit_rate:.1f} %",
                Text(ended(report)),
            )
    out.add_section()
    rate = f"{100 * totals.hit_rate:.1f} %" if totals.prompt_tokens else "?"
    notes = [
        f"{count} {what}"
        for count, what in (
            (totals.unknown, "unknown"),
            (totals.response_cache, "from the response cache"),
            (totals.cancelled, "cancelled"),
            (totals.errors, "failed"),
        )
        if count
    ]
    out.add_row(
        "all",
        "",
        f"{totals.calls} calls",
        f"{totals.prompt_tokens:,}",
        f"{totals.cached_tokens:,}",
        f"{totals.computed_tokens:,}",
        rate,
        ", ".join(notes),
    )
    return out
