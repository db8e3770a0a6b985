"""KV304 completion-order."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._unstable import UnstableRule
from agentkv.lint.spot import Spot


class CompletionOrder(UnstableRule):
    """Results stand in a prompt in the order in which they happened to be ready.

    ## What it catches
    `as_completed(...)` and callbacks of threads whose results are joined into a prompt.

    ## Why it costs
    The same results come in another order the next time, so a retry, a branch or a second question
    about them does not find its prefix.

    ## Bad
    ```python
    notes = [f.result() for f in as_completed(futures)]
    prompt = "\\n".join(notes) + QUESTION
    ```

    ## Good
    ```python
    notes = [f.result() for f in futures]  # or: await asyncio.gather(*tasks)
    ```

    ## When it is wrong
    When the results are sorted by something of their own before they are used.
    """

    code = "KV304"
    name = "completion-order"
    rank = 18
    does = "is in the order in which results became ready"
    advice = "Keep the order in which they were asked for."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "completion_order" in spot.traits
