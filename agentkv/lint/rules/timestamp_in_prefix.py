"""KV101 timestamp-in-prefix."""

from __future__ import annotations

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Severity
from agentkv.lint.price import VOLATILE, Cost
from agentkv.lint.rules._hole import HoleRule, who
from agentkv.lint.spot import Spot


class TimestampInPrefix(HoleRule):
    """A time of day stands in front of text that never changes.

    ## What it catches
    A value that comes from a clock (`datetime.now()`, `time.time()`, a variable called
    `current_time`) in a prompt, with static text or a conversation behind it.

    ## Why it costs
    A prefix is reused only as far as it is equal to the last one. The clock is different in every
    call, so everything behind it is computed again, however long it is. An hour (`%Y-%m-%d %H`)
    breaks the prefix once an hour and is reported lower; so is a clock at the end of a system
    message, which costs the conversation only.

    ## Bad
    ```python
    system = f"It is {datetime.now().isoformat()}.\\n{RULES}"
    ```

    ## Good
    ```python
    messages = [
        {"role": "system", "content": RULES},
        *history,
        {"role": "user", "content": f"{question}\\n\\n(It is {datetime.now().isoformat()}.)"},
    ]
    ```

    ## When it is wrong
    When the value does not reach the model (a log line, a file name), or when it is fixed in this
    application: `[tool.agentkv.lint.stability] current_time = "deploy"`. A clock in a tool result is
    reported at info: results are appended, and cost nothing unless they are built again.
    """

    code = "KV101"
    name = "timestamp-in-prefix"
    rank = 20
    scale = VOLATILE
    advice = "Put the time behind everything that stays: into the last user message."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "clock" in spot.traits and spot.dynamic

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        if spot.role == "tool":
            return Cost(spot.behind, 0, price.share(spot, context), "info")
        cost = super().cost(spot, context)
        if cost is not None and spot.hourly:
            severity: Severity = "warning" if cost.behind >= context.min_tokens else "info"
            return Cost(cost.behind, cost.history, cost.share, severity)
        return cost

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        if spot.role == "tool":
            return (
                f"{who(spot)} is part of a tool result: nothing is lost as long as results are "
                "only appended."
            )
        return super().message(spot, cost, context)
