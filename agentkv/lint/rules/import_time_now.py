"""KV108 import-time-now."""

from __future__ import annotations

from dataclasses import replace

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, what, who
from agentkv.lint.spot import Spot


class ImportTimeNow(HoleRule):
    """A prompt constant holds the time at which its module was imported.

    ## What it catches
    A clock, a date or a random id in a prompt that is put together at module level.

    ## Why it costs
    The value is fixed for a process, so a restart, a deployment or a second replica computes the
    prefix again: little. But after a day the prompt says something that is not true any more.

    ## Bad
    ```python
    SYSTEM = f"Today is {datetime.now():%A, %d %B %Y}.\\n{RULES}"
    ```

    ## Good
    ```python
    SYSTEM = RULES


    def user_message(question: str) -> str:
        return f"Today is {date.today().isoformat()}.\\n\\n{question}"
    ```

    ## When it is wrong
    When the program is a command that runs for seconds, and nothing else shares its cache.
    """

    code = "KV108"
    name = "import-time-now"
    rank = 12

    def catches(self, spot: Spot, context: Context) -> bool:
        return "import_time" in spot.traits and bool(
            spot.traits & {"clock", "date", "random_id", "random_content"}
        )

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        cost = super().cost(spot, context)
        # Cheap as it is, it is a defect: the value is stale.
        return replace(cost, severity="warning") if cost is not None else None

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        return (
            f"{who(spot)} is taken when the module is imported and precedes {what(cost, context)}: "
            "each process has a prefix of its own, and the value grows stale. "
            "Take it when the prompt is made, in the last user message."
        )
