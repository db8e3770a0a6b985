"""KV307 doc-rank-in-text."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import ORDER, Cost
from agentkv.lint.rules._hole import HoleRule, shown
from agentkv.lint.spot import Spot


class DocRankInText(HoleRule):
    """The score of a document is written into the prompt.

    ## What it catches
    `f"[{i}] (score {doc.score:.4f}) {doc.text}"`.

    ## Why it costs
    The same document has another score for another question, so its text is never found again, nor
    is anything behind it.

    ## Bad
    ```python
    context = "\\n".join(f"[{i}] (score {d.score:.4f}) {d.text}" for i, d in enumerate(docs))
    ```

    ## Good
    ```python
    context = "\\n".join(f"[{d.id}] {d.text}" for d in docs)
    ```

    ## When it is wrong
    When the model is asked to weigh documents by their score. Numbers that a parser maps back to
    sources may stay if documents keep their order.
    """

    code = "KV307"
    name = "doc-rank-in-text"
    rank = 36
    most = "warning"

    def catches(self, spot: Spot, context: Context) -> bool:
        return "score_text" in spot.traits

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        traffic = context.traffic
        tokens = spot.behind + traffic.document_tokens
        if spot.total + traffic.document_tokens < context.target.least(spot.model):
            return None
        lost = tokens * traffic.same_documents
        return Cost(tokens, 0, traffic.same_documents, ORDER.severity(lost, self.most))

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        return (
            f"{shown(spot)} writes scores into the text: the same documents, found for another question, "
            f"are about {cost.behind:,} tokens that are computed again. Give each document its id, and "
            "no score."
        )
