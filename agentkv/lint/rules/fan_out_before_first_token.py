"""KV708 fan-out-before-first-token."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._markers import target_of
from agentkv.lint.rules._request import HOSTED, RequestRule
from agentkv.lint.template import Document


class FanOutBeforeFirstToken(RequestRule):
    """Many calls with one prefix are sent at the same moment.

    ## What it catches
    `asyncio.gather(*(ask(q) for q in questions))`, a pool that maps over questions, with a fixed
    prefix long enough to be cached.

    ## Why it costs
    A prefix can be read from the cache only when the first call that has it has begun to answer. Sent
    together, each of them computes (and pays for) all of it.

    ## Bad
    ```python
    answers = await asyncio.gather(*(ask(q) for q in questions))
    ```

    ## Good
    ```python
    first = await ask(questions[0])
    answers = [first, *await asyncio.gather(*(ask(q) for q in questions[1:]))]
    ```

    ## When it is wrong
    With an engine that computes equal prefixes once, and lets the others wait (agentkv does); with few
    calls, or a prefix that was used a minute ago.
    """

    code = "KV708"
    name = "fan-out-before-first-token"
    rank = 52
    advice = "Send one first, the others when it has begun to answer."

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for n, request in enumerate(document.requests):
            if not request.fan_out or request.template is None:
                continue
            provider = target_of(request, context)
            if provider.waits_for_twins and request.api not in HOSTED:
                continue
            tokens = price.prefix(request.template, context)
            if request.tools is not None:
                tokens += context.traffic.tool_tokens
            if tokens < max(context.min_tokens, provider.least(request.model)):
                continue
            yield self.made(
                request.slice,
                f"Many calls with the same {tokens:,} tokens at their head are sent at once, before any of "
                "them can be read from the cache: each computes them.",
                lost=tokens,
                share=1.0,
                severity="warning" if request.api in HOSTED else "info",
                slot=f"fan-out#{n}",
                request=request,
            )
