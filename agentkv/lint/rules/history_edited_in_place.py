"""KV402 history-edited-in-place."""

from __future__ import annotations

from agentkv.lint.rules._request import HistoryRule
from agentkv.lint.rules.reasoning_stripped import thinks
from agentkv.lint.template import HistoryOp, Request


class HistoryEditedInPlace(HistoryRule):
    """Messages that were sent already are changed.

    ## What it catches
    Old tool results that are replaced by a placeholder, contents that are shortened or rewritten, on
    the way to the next call.

    ## Why it costs
    Everything behind the oldest message that changed is computed again. Done in each turn, that is
    most of the conversation, each time.

    ## Bad
    ```python
    for message in messages[:-5]:
        if message["role"] == "tool":
            message["content"] = "[cleared]"
    ```

    ## Good
    ```python
    if count_tokens(messages) > LIMIT:  # rarely, and then many at once
        clear_all_but_last(messages, 5)
    ```

    ## When it is wrong
    When it happens once, near the limit of the context: that is expected, and has its price.
    """

    code = "KV402"
    name = "history-edited-in-place"
    rank = 31
    kinds = ("edited_in_place",)
    does = "Messages that were sent already are changed"
    advice = "Leave them as they were sent; clear many at once, rarely."

    def catches(self, op: HistoryOp, request: Request) -> bool:
        return super().catches(op, request) and not thinks(op)
