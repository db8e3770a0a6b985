"""KV404 system-message-mutated."""

from __future__ import annotations

from agentkv.lint.finding import Severity
from agentkv.lint.rules._request import HistoryRule
from agentkv.lint.template import HistoryOp


class SystemMessageMutated(HistoryRule):
    """The system message of a running conversation is rewritten.

    ## What it catches
    `messages[0]["content"] = ...` in a loop, or in a function that is called for each turn.

    ## Why it costs
    The system message is the first thing in the prompt. Each change computes the whole conversation
    again.

    ## Bad
    ```python
    while True:
        messages[0]["content"] = f"{RULES}\\nState: {state}"
        reply = ask(messages)
    ```

    ## Good
    ```python
    messages = [{"role": "system", "content": RULES}]
    while True:
        messages.append({"role": "user", "content": f"<state>{state}</state>\\n{question}"})
        reply = ask(messages)
    ```

    ## When it is wrong
    When it is set once, before the first call.
    """

    code = "KV404"
    name = "system-message-mutated"
    rank = 29
    kinds = ("system_mutated",)
    does = "The system message is rewritten while the conversation runs"
    advice = "Append a message that says what has changed."

    def worst(self, op: HistoryOp) -> Severity:
        return "warning"
