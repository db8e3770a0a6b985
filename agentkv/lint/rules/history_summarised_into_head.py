"""KV403 history-summarised-into-head."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot
from agentkv.lint.template import Document


class HistorySummarisedIntoHead(HoleRule):
    """A summary of the conversation so far is written into the system prompt.

    ## What it catches
    `system = f"So far: {summary}\\n{RULES}"`: a summary in a system message, with rules or the
    conversation behind it.

    ## Why it costs
    Each new summary changes the first message, so the rules behind it, the tools' examples and all
    messages are computed again. The rules would have been reused in any case.

    ## Bad
    ```python
    system = f"So far: {summary}\\n\\n{RULES}"
    ```

    ## Good
    ```python
    messages = [
        {"role": "system", "content": RULES},
        {"role": "user", "content": f"<summary>\\n{summary}\\n</summary>"},
        *recent,
    ]
    ```

    ## When it is wrong
    When the summary is made once for a session, and nothing that is shared stands behind it.
    """

    code = "KV403"
    name = "history-summarised-into-head"
    rank = 37
    inside = False
    most = "warning"
    advice = "Keep the rules first, and give the summary as the first message behind them."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "summary" in spot.traits and spot.dynamic and spot.role == "system"

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        found = list(super().check(document, context))
        yield from found
        seen = {f.slice for f in found}
        for request in document.requests:
            for n, op in enumerate(request.history):
                if op.kind != "summarised_into_head" or op.slice in seen:
                    continue
                seen.add(op.slice)
                tokens = max(price.whole(request, None, context), context.traffic.history_tokens)
                yield Finding(
                    code=self.code,
                    name=self.name,
                    slice=op.slice,
                    message=(
                        "A summary is written into the head of the prompt: each new one computes "
                        f"about {tokens:,} tokens behind it again. {self.advice}"
                    ),
                    severity="warning",
                    tokens_lost=tokens,
                    share=1.0,
                    template=request.template,
                    request=request,
                    slot=f"summarised_into_head#{n}",
                )
