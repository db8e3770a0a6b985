"""KV410 fork-prefix-differs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._request import RequestRule
from agentkv.lint.template import Document, Hole, Request, Template, Text

_FORK = re.compile(r"summar|compact|condens|recap|title for|handoff|hand-off", re.IGNORECASE)


class ForkPrefixDiffers(RequestRule):
    """A call about a conversation does not begin as the conversation does.

    ## What it catches
    A second call in a file that sends the same history with another system prompt, or without the
    tools, to summarise, compact or name it.

    ## Why it costs
    The conversation is in the cache behind *its* system prompt and tools. Behind others, all of it is
    computed again, exactly when it is longest.

    ## Bad
    ```python
    summary = ask([{"role": "system", "content": "Summarise the conversation."}, *history])
    ```

    ## Good
    ```python
    summary = ask([system, *history, {"role": "user", "content": "Summarise the conversation."}], tools=tools)
    ```

    ## When it is wrong
    When the helper call is meant to be small, goes to a cheaper model, or the history is short. This
    is advice, at info.
    """

    code = "KV410"
    name = "fork-prefix-differs"
    certainty = "heuristic"
    rank = 81

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        talks = [(r, h) for r in document.requests if (h := _history(r.template)) is not None]
        for n, (fork, history) in enumerate(talks):
            head = _head(fork.template)
            if not _FORK.search(_all(fork.template)):
                continue
            main = next(
                (
                    r
                    for r, h in talks
                    if r is not fork
                    and h == history
                    and not _FORK.search(_all(r.template))
                    and _differs(r, fork)
                ),
                None,
            )
            if main is None:
                continue
            tokens = context.traffic.history_tokens + context.count(_head(main.template))
            yield self.made(
                fork.slice,
                f"This call sends `{history}` behind another beginning"
                f"{'' if head != _head(main.template) else ' (other tools)'} than the conversation's own "
                f"call: about {tokens:,} tokens are computed again.",
                lost=tokens,
                share=1.0,
                severity="info",
                slot=f"fork#{n}",
                request=fork,
                also=((main.slice, "the conversation's own call"),),
            )

    advice = "Send the same beginning, and append the instruction."


def _history(template: Template | None) -> str | None:
    if template is None:
        return None
    for part in template.parts:
        for piece in part.pieces:
            if isinstance(piece, Hole) and (part.placeholder or "history" in piece.traits):
                return piece.name
    return None


def _head(template: Template | None) -> str:
    """Text in front of the conversation."""
    out: list[str] = []
    for part in template.parts if template is not None else ():
        if part.placeholder:
            break
        out += [p.value if isinstance(p, Text) else p.expr for p in part.pieces]
    return "\n".join(out)


def _all(template: Template | None) -> str:
    parts = template.parts if template is not None else ()
    return "\n".join(p.value for part in parts for p in part.pieces if isinstance(p, Text))


def _differs(main: Request, fork: Request) -> bool:
    return _head(main.template) != _head(fork.template) or (main.tools is None) != (
        fork.tools is None
    )
