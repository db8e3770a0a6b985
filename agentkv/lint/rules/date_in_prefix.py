"""KV102 date-in-prefix."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE, Cost, lower
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class DateInPrefix(HoleRule):
    """A date stands in front of text that never changes.

    ## What it catches
    `date.today()`, `strftime("%Y-%m-%d")`, a variable called `date` or `current_date`, with static
    text or a conversation behind it.

    ## Why it costs
    Every prefix is computed once more each day, and for everybody at the same moment. That is little,
    and often wanted, so a value that is known to be a day is reported at info. A variable that is
    only *called* a date may hold a time of day as well, which would break the prefix in every call:
    it is a warning until the code shows its precision or the configuration says it.

    ## Bad
    ```python
    prompt = ChatPromptTemplate.from_messages([
        ("system", "Today is {date}.\\n" + RULES),
        ("human", "{question}"),
    ])
    ```

    ## Good
    ```python
    prompt = ChatPromptTemplate.from_messages([
        ("system", RULES),
        ("human", "Today is {date}.\\n\\n{question}"),
    ])
    ```

    ## When it is wrong
    When the date is one of the content (a release date, the date of a document), or when one miss a
    day is fine: `ignore = ["KV102"]`, or `[tool.agentkv.lint.stability] date = "deploy"`.
    """

    code = "KV102"
    name = "date-in-prefix"
    rank = 21
    scale = VOLATILE
    advice = "Put the date into the last user message, or keep it at day precision."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "date" in spot.traits and "clock" not in spot.traits and spot.dynamic

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        cost = super().cost(spot, context)
        if cost is None:
            return None
        severity = "info" if spot.hole.known else cost.severity
        if severity == "error":
            severity = "warning"
        if cost.behind < context.min_tokens:
            severity = lower(severity)
        return Cost(cost.behind, cost.history, cost.share, severity)
