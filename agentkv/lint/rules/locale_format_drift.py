"""KV312 locale-format-drift."""

from __future__ import annotations

from dataclasses import replace

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, shown, what
from agentkv.lint.spot import Spot


class LocaleFormatDrift(HoleRule):
    """A number or a date is written as the machine's locale wants it.

    ## What it catches
    `locale.format_string`, `locale.currency`, `f"{n:n}"`, names of days and months from the host's
    locale, in front of `--min-tokens` or more static tokens.

    ## Why it costs
    `1,234.5` on one machine is `1.234,5` on another: the replicas of one service do not share a prefix.

    ## Bad
    ```python
    system = f"The budget is {locale.currency(budget)}.\\n{RULES}"
    ```

    ## Good
    ```python
    system = f"The budget is {budget:.2f} EUR.\\n{RULES}"
    ```

    ## When it is wrong
    When the locale is fixed for all machines, or the text is meant for a user in the user's own way
    of writing.
    """

    code = "KV312"
    name = "locale-format-drift"
    rank = 34

    def catches(self, spot: Spot, context: Context) -> bool:
        return "locale" in spot.traits

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        cost = super().cost(spot, context)
        # Cheap as it is, it is a defect: the prompt depends on the machine.
        return replace(cost, severity="warning") if cost is not None else None

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        return (
            f"{shown(spot)} is written as the host's locale wants it and precedes {what(cost, context)}: "
            "machines with other settings have another prefix. Write it in one fixed form."
        )
