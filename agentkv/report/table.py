"""Reports as a table for a terminal or a notebook. rich is loaded only when one is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentkv.report.report import CacheReport

if TYPE_CHECKING:
    from rich.table import Table


def table(reports: Iterable[CacheReport], *, title: str | None = None) -> Table:
    """One row a call (prompt, cached, computed, hit rate, TTFT, reason), and the sums."""
    from rich.table import Table

    out = Table(title=title)
    out.add_column("call", justify="right")
    for name in ("prompt", "cached", "computed", "hit"):
        out.add_column(name, justify="right")
    out.add_column("TTFT ms", justify="right")
    out.add_column("reuse ended", overflow="fold")
    prompt = cached = calls = 0
    for calls, r in enumerate(reports, 1):
        prompt += r.prompt_tokens
        cached += r.cached_tokens
        out.add_row(
            str(calls),
            f"{r.prompt_tokens:,}",
            f"{r.cached_tokens:,}",
            f"{r.computed_tokens:,}",
            f"{100 * r.hit_rate:.1f} %",
            f"{r.ms.get('ttft', 0.0):.1f}",
            _ended(r),
        )
    if calls > 1:
        out.add_section()
        rate = 100 * cached / prompt if prompt else 0.0
        total = (f"{prompt:,}", f"{cached:,}", f"{prompt - cached:,}", f"{rate:.1f} %", "", "")
        out.add_row("all", *total)
    return out


def _ended(report: CacheReport) -> str:
    miss = report.miss
    if miss is None:
        return ""
    where = f" in {miss.segment}" if miss.segment else ""
    return f"{miss.reason}{where} at {miss.token:,}"
