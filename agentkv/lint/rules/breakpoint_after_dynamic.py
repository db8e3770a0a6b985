"""KV701 breakpoint-after-dynamic."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Severity
from agentkv.lint.rules._hole import percent
from agentkv.lint.rules._request import RequestRule
from agentkv.lint.spot import effective, request_of
from agentkv.lint.template import Document, Hole


class BreakpointAfterDynamic(RequestRule):
    """A cache marker stands behind something that changes in every call.

    ## What it catches
    `cache_control` (or `cachePoint`) on a block that holds a clock, a random id or a counter, or
    that stands behind one; and on a system block that holds the question or documents of the turn.

    ## Why it costs
    The marker says: keep the prompt up to here. That part is never the same again, so each call pays
    for writing it (1.25 times the price of reading it uncached) and none ever reads it.

    ## Bad
    ```python
    system=[{"type": "text", "text": f"{RULES}\\nIt is {now()}.", "cache_control": {"type": "ephemeral"}}]
    ```

    ## Good
    ```python
    system=[
        {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": f"It is {now()}."},
    ]
    ```

    ## When it is wrong
    A marker on the newest message of a conversation is right: the next call reads it. That is not
    reported.
    """

    code = "KV701"
    name = "breakpoint-after-dynamic"
    rank = 8
    most = "error"
    advice = "Move the marker to the last block that stays the same."

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            worst: Hole | None = None
            for i, part in enumerate(template.parts):
                for piece in part.pieces:
                    if not isinstance(piece, Hole) or part.placeholder:
                        continue
                    level, traits = effective(piece, context)
                    clock = level == "call" and not (traits & {"date"} and not traits & {"clock"})
                    turn = level == "turn" and part.role == "system" and "history" not in traits
                    if (clock or turn) and worst is None:
                        worst = piece
                if part.marker is None or worst is None:
                    continue
                request = request_of(template, document)
                tokens = price.static(template, context)
                if tokens < context.min_tokens:
                    break
                level, _ = effective(worst, context)
                share = context.traffic.share(level)
                severity: Severity = "error" if level == "call" else "warning"
                yield self.made(
                    part.marker,
                    f"This cache marker covers {worst.expr.strip()} ({level}): what it keeps, about "
                    f"{tokens:,} tokens, is written in each call and hardly read; {percent(share)}.",
                    lost=tokens * share,
                    share=share,
                    severity=severity,
                    slot=f"{template.name}/marker#{i}",
                    request=request,
                    template=template,
                    also=((worst.slice, "changes"),) if worst.slice is not None else (),
                )
                break
