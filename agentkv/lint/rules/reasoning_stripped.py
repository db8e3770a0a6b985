"""KV406 reasoning-stripped."""

from __future__ import annotations

import re

from agentkv.lint.rules._request import HistoryRule
from agentkv.lint.template import HistoryOp, Request

_THOUGHTS = re.compile(r"</?think|reasoning|thinking", re.IGNORECASE)


class ReasoningStripped(HistoryRule):
    """The thoughts of earlier answers are taken out of the conversation.

    ## What it catches
    Code that removes `<think>...</think>`, `reasoning_content` or thinking blocks from messages
    before they are sent again.

    ## Why it costs
    The engine has computed the answer *with* its thoughts. Sent back without them, it is another
    text: the answer and everything behind it is computed again, once for each answer.

    ## Bad
    ```python
    message["content"] = re.sub(r"<think>.*?</think>", "", message["content"], flags=re.S)
    ```

    ## Good
    ```python
    messages.append(reply.choices[0].message)  # as it came, reasoning included
    ```

    ## When it is wrong
    When the model's own template drops them anyway (KV603), or its provider asks you to leave them
    out. Thoughts can be long: leaving them out may cost less than keeping them.
    """

    code = "KV406"
    name = "reasoning-stripped"
    rank = 33
    kinds = ("reasoning_stripped", "edited_in_place")
    does = "Thoughts are taken out of answers before they are sent again"
    advice = "Send answers back as they came."

    def catches(self, op: HistoryOp, request: Request) -> bool:
        return super().catches(op, request) and (op.kind == "reasoning_stripped" or thinks(op))


def thinks(op: HistoryOp) -> bool:
    """Whether what is done to a message is done to its thoughts."""
    return _THOUGHTS.search(op.detail) is not None
