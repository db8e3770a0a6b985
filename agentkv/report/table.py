"""Reports as a table for a terminal or a notebook. rich is loaded only when one is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentkv.report.report import CacheReport
from agentkv.report.view import ended

if TYPE_CHECKING:
    from rich.table import Table


def table(reports: Iterable[CacheReport], *, title: str | None = None) -> Table:
    """One row a call (prompt, cached, computed, hit rate, TTFT, reason), and the sums."""
    from rich.table import Table
    from rich.text import Text

    out = Table(title=title)
    out.add_column("call", justify="right")
    for name in ("prompt", "cached", "computed", "hit"):
        out.add_column(name, justify="right")
    out.add_column("TTFT ms", justify="right")
    out.add_column("reuse ended", overflow="fold")
    prompt = cached = calls = 0
    for calls, r in enumerate(reports, 1):
        known = r.cached_known
        # What a server does not say counts on neither side of the rate.
        prompt += r.prompt_tokens if known else 0
        cached += r.cached_tokens
        out.add_row(
            str(calls),
            f"{r.prompt_tokens:,}",
            f"{r.cached_tokens:,}" if known else "?",
            f"{r.computed_tokens:,}" if known else "?",
            f"{100 * r.hit_rate:.1f} %" if known else "?",
            f"{r.ms['ttft']:.1f}" if "ttft" in r.ms else "",
            Text(ended(r)),
        )
    if calls > 1:
        out.add_section()
        rate = f"{100 * cached / prompt:.1f} %" if prompt else "?"
        total = (f"{prompt:,}", f"{cached:,}", f"{prompt - cached:,}", rate, "", "")
        out.add_row("all", *total)
    return out
