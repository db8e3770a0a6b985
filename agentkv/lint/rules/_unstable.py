"""What rules about values in an unstable order share: the pipeline's order of things, not content."""

from __future__ import annotations

from typing import ClassVar

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, often, what, who
from agentkv.lint.spot import Spot


class UnstableRule(HoleRule):
    """A value whose text differs although nothing that it says has changed.

    It is a defect wherever more of the prompt follows, however little: then at info. Where a
    conversation follows, its tokens are lost on the next replica or after a restart.
    """

    does: ClassVar[str]

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        history = context.traffic.history_tokens if spot.history else 0
        if spot.total + history < context.target.least(spot.model):
            return None
        part = price.share(spot, context)
        if spot.behind + history >= max(context.min_tokens, context.target.granularity):
            return Cost(spot.behind, history, part, "warning")
        # Of many results that are joined, those behind the first that moved are lost in any case.
        many = "loop" in spot.traits and "completion_order" in spot.traits
        return Cost(spot.behind, 0, part, "info") if spot.after or many else None

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        behind = (
            f" and precedes {what(cost, context)}; {often(spot, cost, context)}"
            if cost.lost
            else ""
        )
        return f"{who(spot)} {self.does}{behind}. {self.advice}"
