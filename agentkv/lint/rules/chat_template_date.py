"""KV601 chat-template-date."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, shown
from agentkv.lint.spot import Spot


class ChatTemplateDate(HoleRule):
    """The chat template of a model writes today's date into the prompt.

    ## What it catches
    `strftime_now(...)`, or a date that is filled in when the caller gives none, in a chat template.

    ## Why it costs
    The date stands at the head of the system message, in front of everything: at midnight every
    prefix of every user is void, and two hosts in other time zones share nothing for hours. With a
    time of day in it, nothing is ever reused.

    ## Bad
    ```jinja
    {{- "Today Date: " + strftime_now("%d %b %Y") }}
    ```

    ## Good
    ```python
    tokenizer.apply_chat_template(messages, date_string="26 Jul 2024")  # pinned
    ```

    ## When it is wrong
    When the date is a constant of the template (Llama 3.1 and 3.3 by default).
    """

    code = "KV601"
    name = "chat-template-date"
    rank = 5
    most = "warning"

    def catches(self, spot: Spot, context: Context) -> bool:
        return (
            spot.template.format == "chat_template"
            and bool(spot.traits & {"clock", "date"})
            and spot.level not in ("build", "deploy")
            and not any(getattr(p, "inner", ()) for p in (spot.hole,))
        )

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        traffic = context.traffic
        part = traffic.share("call") if "clock" in spot.traits and not spot.hourly else traffic.day
        return Cost(spot.behind, traffic.history_tokens, part, "warning")

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        when = (
            "in every call" if cost.share == 1 else "once a day, for everybody at the same moment"
        )
        return (
            f"{shown(spot)} writes the date in front of every conversation: all of it is computed again "
            f"{when}. Pass a fixed date (`date_string=`) and give today's in a message."
        )
