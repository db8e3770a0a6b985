"""KV105 counter-in-prefix."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class CounterInPrefix(HoleRule):
    """A number that counts calls, steps or tokens stands in front of static text.

    ## What it catches
    `Step {i} of {n}`, `{tokens_left} tokens left`, a retry count, in a prompt with static text or a
    conversation behind it.

    ## Why it costs
    An agent calls the model once a step, and each step has another number: each call computes
    everything behind it again, exactly where reuse would help most.

    ## Bad
    ```python
    for i in range(n):
        system = f"Step {i + 1} of {n}.\\n{RULES}"
    ```

    ## Good
    ```python
    for i in range(n):
        messages.append({"role": "user", "content": f"{task}\\n\\n(Step {i + 1} of {n}.)"})
    ```

    ## When it is wrong
    When the number numbers static text (headings, lists), or is the same in all calls (a limit).
    """

    code = "KV105"
    name = "counter-in-prefix"
    rank = 22
    scale = VOLATILE
    advice = "Put the count at the end of the newest message."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "counter" in spot.traits and spot.dynamic
