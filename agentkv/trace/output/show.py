"""One session in a terminal, a block a call: what was served, and where the rest was lost."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from agentkv.trace.output import words
from agentkv.trace.output.console import blocks
from agentkv.trace.output.difference import one_line
from agentkv.trace.output.terminal import compared
from agentkv.trace.show import Session, Step

_DETAILED = 3
"""Changes of a call that are shown."""


def write(session: Session, out: Console) -> None:
    rate = session.cached / session.prompt_tokens if session.prompt_tokens else None
    name = one_line(session.session, 60) + ("" if session.named else " (inferred)")
    text = Text(f"session {name}", style="bold")
    about = "" if session.exact else "about "
    said = (
        f"\n{words.plural(len(session.steps), 'call')}, "
        f"{about}{words.plural(session.prompt_tokens, 'prompt token')}, "
        f"{words.percent(rate)} reused, {words.count(session.lost)} lost"
    )
    text.append(said, "not bold").append(f"\ncache {session.cache}", "not bold dim")
    out.print(text)
    out.print()
    longest = max((s.prompt_tokens for s in session.steps), default=0)
    for step in session.steps:
        _step(step, longest, out)
    if session.others:
        out.print()
        more = ", ".join(
            f"{one_line(o.session, 30)} ({words.short(o.lost)} lost)" for o in session.others[:5]
        )
        text = Text(f"Other sessions ({words.count(session.sessions)} in all): {more}", "dim")
        out.print(text)


def _step(s: Step, longest: int, out: Console) -> None:
    line = Text(f"{s.request + 1:>4}  ", "dim")
    if s.error is not None:
        line.append(f"failed: {one_line(s.error, 80)}", "red")
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        return
    line.append_text(_bar(s, longest, out))
    rate = s.cached / s.prompt_tokens if s.prompt_tokens else None
    line.append(f" {words.short(s.prompt_tokens):>6} tokens {words.percent(rate):>8}", "not dim")
    if s.measured is not None:
        line.append(f"  measured {words.short(s.measured)}", "dim")
    if s.lost:
        line.append(f"  {words.count(s.lost)} lost", "yellow")
    if s.evicted:
        line.append(f"  {words.count(s.evicted)} evicted", "magenta")
    out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    room = out.width - 8
    said = f"{s.role}: {one_line(s.said, max(room - len(s.role) - 2, 10))}" if s.said else ""
    if said:
        out.print(Text(f"      {said}", "dim"), no_wrap=True, overflow="ellipsis", crop=True)
    for change in s.changes[:_DETAILED]:
        name = f"{change.rule} {change.name}" if change.rule else words.reason(change.reason)
        head = Text("      ").append(name, "bold")
        head.append(f"  {one_line(change.segment, 30)}, token {words.count(change.at)}", "dim")
        if change.tokens_lost:
            head.append(f", {words.plural(change.tokens_lost, 'token')}", "dim")
        out.print(head, no_wrap=True, overflow="ellipsis", crop=True)
        for text in compared(change.before, change.was, change.now, out.width - 4):
            out.print(Text("    ").append_text(text), no_wrap=True, overflow="ellipsis", crop=True)
    if len(s.changes) > _DETAILED:
        out.print(Text(f"      and {len(s.changes) - _DETAILED} more changes", "dim"))


def _bar(s: Step, longest: int, out: Console) -> Text:
    """The prompt's length to scale, and of it what was reused, lost and new."""
    size = max(10, min(36, out.width - 50))
    full, lost, new, rest = ("█", "▒", "░", " ") if blocks(out) else ("#", "-", ".", " ")
    if not longest:
        return Text(rest * size)
    have = round(s.cached / longest * size)
    gone = max(0, min(round((s.cached + s.lost) / longest * size), size) - have)
    end = max(round(s.prompt_tokens / longest * size), have + gone)
    text = Text(full * have, "blue").append(lost * gone, "yellow")
    return text.append(new * (end - have - gone), "dim").append(rest * (size - end))
