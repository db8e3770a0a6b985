"""KV306 retrieved-docs-order."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, shown
from agentkv.lint.spot import Spot


class RetrievedDocsOrder(HoleRule):
    """Documents stand in the order of their scores.

    ## What it catches
    Results of a search, sorted by score, in a prompt with something behind them.

    ## Why it costs
    Two questions may retrieve the same documents, ranked in another order. Sorted by their ids they
    would be one prefix.

    ## Bad
    ```python
    docs = sorted(found, key=lambda d: d.score, reverse=True)
    ```

    ## Good
    ```python
    docs = sorted(found[:k], key=lambda d: d.id)  # ranking chooses, ids order
    ```

    ## When it is wrong
    When rank is a signal that the model should see: the best first is a choice of quality. This is
    advice, at info.
    """

    code = "KV306"
    name = "retrieved-docs-order"
    certainty = "heuristic"
    rank = 74

    def catches(self, spot: Spot, context: Context) -> bool:
        return "score_order" in spot.traits or {"tie_order", "context"} <= spot.traits

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        traffic = context.traffic
        if not spot.after and not spot.history:
            return None
        return Cost(spot.behind, traffic.document_tokens, traffic.same_documents, "info")

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        return (
            f"{shown(spot)} is in the order of scores: the same documents, ranked otherwise for another "
            f"question, are about {cost.history:,} tokens that are computed again. Choose by rank, order "
            "by id, if rank is not meant to be seen."
        )
