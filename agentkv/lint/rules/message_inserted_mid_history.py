"""KV405 message-inserted-mid-history."""

from __future__ import annotations

import re

from agentkv.lint.finding import Severity
from agentkv.lint.rules._request import HistoryRule
from agentkv.lint.template import HistoryOp, Request


class MessageInsertedMidHistory(HistoryRule):
    """A message is inserted into the conversation in front of messages that were sent already.

    ## What it catches
    `messages.insert(1, reminder)`, a reminder that is taken out and put in again in each turn,
    `messages.insert(0, ...)` in a loop.

    ## Why it costs
    Everything behind the place is another prefix than in the last call, and is computed again.

    ## Bad
    ```python
    while True:
        messages.insert(1, {"role": "user", "content": reminder(state)})
        reply = ask(messages)
    ```

    ## Good
    ```python
    while True:
        messages.append({"role": "user", "content": reminder(state)})
        reply = ask(messages)
    ```

    ## When it is wrong
    When it happens while the list is built, at the same place with the same text in each call.
    Outside of a loop, at a fixed place, it is reported at info: the linter cannot see how often it
    runs, or what the text is.
    """

    code = "KV405"
    name = "message-inserted-mid-history"
    rank = 32
    kinds = ("inserted_mid", "inserted_front")
    does = "A message is inserted in front of messages that were sent already"
    advice = "Append it."

    def catches(self, op: HistoryOp, request: Request) -> bool:
        return super().catches(op, request) and (op.kind == "inserted_mid" or op.in_loop)

    def worst(self, op: HistoryOp) -> Severity:
        # Counted from the end, the place moves with every message; a text that is put together may
        # be another one each time.
        varies = re.search(
            r"insert\(\s*(?:-|len\()|\bf[\"']|\.format\(|content\W+[a-z_]+\b(?!\()|[\"']\s*\+\s*\w",
            op.detail,
        )
        return "warning" if op.in_loop or varies else "info"
