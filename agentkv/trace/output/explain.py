"""One explained pair of requests in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from agentkv.trace.explain import Explanation
from agentkv.trace.output import words
from agentkv.trace.output.console import blocks
from agentkv.trace.output.difference import one_line
from agentkv.trace.output.terminal import compared, hanging
from agentkv.trace.told import Told

_CHANGES = 8


def write(e: Explanation, out: Console) -> None:
    before, after = f"{e.before.file}:{e.before.line}", f"{e.after.file}:{e.after.line}"
    out.print(Text(f"{one_line(before, 60)} → {one_line(after, 60)}", "bold"))
    about = "" if e.exact else "about "
    out.print(
        Text(
            f"{about}{words.count(e.after_tokens)} prompt tokens, of which the first "
            f"{words.count(e.shared)} can be reused",
            "dim",
        )
    )
    out.print()
    if e.reason is None:
        out.print(Text("Nothing differs: the whole prompt can be reused.", "green"))
        return
    name = f"{e.rule} {e.name}" if e.rule else words.reason(e.reason)
    head = Text(name, "bold green" if e.healthy else "bold yellow")
    place = f"  {one_line(e.segment or 'prompt', 40)}, token {words.count(e.token or 0)}"
    head.append(place + (f": {words.reason(e.reason)}" if e.rule else ""), "not bold dim")
    out.print(head)
    for line in compared(e.context, e.was, e.now, out.width):
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    if e.detail:
        out.print(Text(f"    {one_line(e.detail, 300)}", "dim"))
    if e.tokens_lost:
        lost = words.plural(e.tokens_lost, "token")
        out.print(f"    {lost} that the earlier request also held must be computed again.")
    elif e.healthy:
        out.print(Text("    Healthy: nothing that could be reused is lost.", "green"))
    if e.advice:
        out.print(hanging("→" if blocks(out) else "->", e.advice, indent=4, style="green"))
    if e.was is None and e.now is None:
        out.print(Text("    The text is unknown: it was not recorded.", "dim"))
    rest = [c for c in e.changes if c.tokens_lost or c.rule][:_CHANGES]
    if len(rest) > 1:
        out.print()
        out.print(Text("All that changed in front of text that could have been reused:", "dim"))
        for change in rest:
            _change(change, out)


def _change(c: Told, out: Console) -> None:
    name = f"{c.rule} {c.name}" if c.rule else words.reason(c.reason)
    head = Text(f"  {name}", "bold")
    lost = words.plural(c.tokens_lost, "token")
    head.append(
        f"  {one_line(c.segment, 40)}, token {words.count(c.at)}, {lost} lost", "not bold dim"
    )
    out.print(head, no_wrap=True, overflow="ellipsis", crop=True)
    for line in compared(c.before, c.was, c.now, out.width):
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)


HEALTHY = (None, "first_call", "appended", "sub_page_tail")
"""Reasons for which nothing that could have been reused was lost."""


def write_reply(reply: dict[str, Any], out: Console) -> None:
    """What a server says of one of its calls (`GET /agentkv/explain/{request_id}`)."""
    out.print(Text(f"request {one_line(str(reply.get('request_id') or ''), 80)}", "bold"))
    prompt, cached = reply.get("prompt_tokens"), reply.get("cached_tokens")
    said = []
    if isinstance(prompt, int) and isinstance(cached, int):
        said.append(f"{words.plural(prompt, 'prompt token')}, {words.count(cached)} cached")
    for key, name in (("resident_tokens", "in the cache"), ("reusable_tokens", "reusable")):
        if isinstance(reply.get(key), int):
            said.append(f"{words.count(reply[key])} {name}")
    if reply.get("session"):
        said.append(f"session {one_line(str(reply['session']), 60)}")
    out.print(Text(", ".join(said), "dim"))
    out.print()
    miss = reply.get("miss")
    if not isinstance(miss, dict):
        out.print(Text("Nothing was missed: all that could be reused was.", "green"))
    else:
        _miss(miss, out)
    for s in reply.get("segments") or ():
        name = one_line(str(s.get("name")), 40)
        tokens, held = int(s.get("tokens") or 0), int(s.get("cached") or 0)
        line = Text(f"    {held:>8,} of {tokens:>8,} tokens cached  ", "dim").append(
            name, "not dim"
        )
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _miss(miss: dict[str, Any], out: Console) -> None:
    reason = miss.get("reason")
    healthy = reason in HEALTHY
    rule = miss.get("rule")
    name = f"{rule} {words.reason(str(reason))}" if rule else words.reason(str(reason))
    head = Text(name, "bold green" if healthy else "bold yellow")
    if miss.get("segment"):
        head.append(f"  {one_line(str(miss['segment']), 40)}", "not bold dim")
    if isinstance(miss.get("token"), int):
        head.append(f", token {words.count(miss['token'])}", "not bold dim")
    out.print(head)
    was, now = miss.get("was"), miss.get("now")
    known = [str(t) if t is not None else None for t in (was, now)]
    for line in compared(None, known[0], known[1], out.width):
        out.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    for key in ("detail", "advice"):
        if miss.get(key):
            out.print(Text(f"    {one_line(str(miss[key]), 300)}"))
    out.print()
