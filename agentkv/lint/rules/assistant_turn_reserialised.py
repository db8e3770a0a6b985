"""KV407 assistant-turn-reserialised."""

from __future__ import annotations

from agentkv.lint.finding import Severity
from agentkv.lint.rules._request import HistoryRule
from agentkv.lint.template import HistoryOp


class AssistantTurnReserialised(HistoryRule):
    """An answer is written anew before it is sent back.

    ## What it catches
    Tool arguments that are parsed and dumped again, ids that are made anew, texts that are stripped,
    in messages of the assistant.

    ## Why it costs
    `{"a": 1}` and `{"a":1}` are other tokens. What the model wrote is in the cache; what you wrote
    from it is not, and neither is anything behind it.

    ## Bad
    ```python
    call["arguments"] = json.dumps(json.loads(call["arguments"]))
    ```

    ## Good
    ```python
    arguments = json.loads(call["arguments"])  # for your own use
    messages.append(message)  # as it came
    ```

    ## When it is wrong
    When the engine splices in what it sampled (agentkv does, for tool calls whose id it knows), or the
    provider parses JSON before it compares.
    """

    code = "KV407"
    name = "assistant-turn-reserialised"
    rank = 33
    kinds = ("reserialised",)
    does = "Tool calls or texts of the assistant are written anew"
    advice = "Keep the text as it came, and send that."

    def worst(self, op: HistoryOp) -> Severity:
        # A blank at an answer's end is a token or two, and most answers have none.
        return "info" if "white space" in op.detail else self.most
