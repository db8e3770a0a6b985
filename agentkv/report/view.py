"""One report drawn: for a terminal with rich, and as HTML for a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agentkv.report.report import CacheReport


def headline(report: CacheReport) -> str:
    """The call in one line."""
    prompt = f"{report.prompt_tokens:,}"
    if not report.cached_known:
        return f"{prompt} prompt tokens; the server does not say what it reused"
    return (
        f"{report.cached_tokens:,} of {prompt} prompt tokens reused "
        f"({100 * report.hit_rate:.1f} %), {report.computed_tokens:,} computed"
    )


def ended(report: CacheReport) -> str:
    """Where reuse ended and why; empty when nothing was missed."""
    miss = report.miss
    if miss is None:
        return ""
    where = f" in {miss.segment}" if miss.segment else ""
    return f"{miss.reason}{where} at {miss.token:,}"


def facts(report: CacheReport) -> list[tuple[str, str]]:
    """What else there is to say, as pairs of a label and a sentence."""
    out: list[tuple[str, str]] = []
    if report.miss is not None:
        out.append(("reuse ended", ended(report)))
        for label, text in (
            ("was", report.miss.was),
            ("now", report.miss.now),
            ("detail", report.miss.detail),
            ("advice", report.miss.advice),
        ):
            if text:
                out.append((label, text))
    layout = report.layout
    if layout is not None:
        out += [("moved", f"{name} -> {to}") for name, to in layout.moved]
        out += [("left", f"{name}: {why}") for name, why in layout.refused]
        if layout.masked:
            out.append(("masked tools", ", ".join(layout.masked)))
        out += [
            ("proposed", f"{name} -> {to}, saves about {saves:,} tokens a call")
            for name, to, saves, _, _ in layout.proposed
        ]
        out += [("warning", text) for text in layout.warnings]
    times = [f"{name} {value:,.1f}" for name, value in report.ms.items()]
    if times:
        out.append(("ms", ", ".join(times)))
    if report.saved_prefill_ms:
        out.append(("prefill saved", f"about {report.saved_prefill_ms:,.0f} ms"))
    return out


def rich_view(report: CacheReport) -> RenderableType:
    """A panel: the headline, a row for each segment, and why the rest was not reused."""
    from rich.box import SIMPLE
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(headline(report), style="bold")]
    if report.segments:
        rows = Table(box=SIMPLE)
        rows.add_column("segment", overflow="fold")
        rows.add_column("kind")
        rows.add_column("tokens", justify="right")
        rows.add_column("cached", justify="right")
        for use in report.segments:
            # Text, so that brackets in a name are not read as markup.
            rows.add_row(Text(use.name), use.kind, f"{use.tokens:,}", f"{use.cached:,}")
        parts.append(rows)
    lines = Table.grid(padding=(0, 2))
    for label, text in facts(report):
        lines.add_row(Text(label, style="dim"), Text(text))
    if lines.rows:
        parts.append(lines)
    title = "cache report (segments estimated)" if report.estimated else "cache report"
    return Panel(Group(*parts), title=title, title_align="left", expand=False)


def html_view(report: CacheReport) -> str:
    """The same as HTML, with every text escaped: prompts are quoted in it."""
    out = [f"<div><b>{escape(headline(report))}</b>"]
    if report.segments:
        out.append("<table><tr><th>segment</th><th>kind</th><th>tokens</th><th>cached</th></tr>")
        for use in report.segments:
            out.append(
                f"<tr><td>{escape(use.name)}</td><td>{escape(use.kind)}</td>"
                f"<td>{use.tokens:,}</td><td>{use.cached:,}</td></tr>"
            )
        out.append("</table>")
    found = facts(report)
    if found:
        out.append("<table>")
        out += [f"<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>" for a, b in found]
        out.append("</table>")
    out.append("</div>")
    return "".join(out)
