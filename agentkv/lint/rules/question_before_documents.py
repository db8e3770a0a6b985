"""KV205 question-before-documents."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.names import guess
from agentkv.lint.price import ORDER, Cost
from agentkv.lint.rules._hole import HoleRule, firm, percent, who
from agentkv.lint.source import Slice
from agentkv.lint.spot import Spot
from agentkv.lint.template import Hole


class QuestionBeforeDocuments(HoleRule):
    """The question stands in front of the documents that it is about.

    ## What it catches
    A question, query or task with a slot for documents, context or search results behind it.

    ## Why it costs
    The next question about the same documents reads all of them again. Questions at the end are also
    answered better: models attend to what they read last, and the advice of the large providers for
    long documents is documents first.

    ## Bad
    ```jinja
    Question: {{ question }}

    Documents:
    {{ documents }}
    ```

    ## Good
    ```jinja
    Documents:
    {{ documents }}

    Question: {{ question }}
    ```

    ## When it is wrong
    When the question is repeated behind the documents on purpose (this is seen), or when the same
    documents never come twice.
    """

    code = "KV205"
    name = "question-before-documents"
    rank = 41
    inside = False

    def catches(self, spot: Spot, context: Context) -> bool:
        if "question" not in spot.traits or "context" in spot.traits or not spot.dynamic:
            return False
        documents = self._documents(spot)
        if documents is None or spot.placeholder or spot.role == "assistant":
            return False
        rest = spot.after[spot.after.index(documents) :]
        return not any(isinstance(p, Hole) and _asks(p, spot.hole.name) for p in rest)

    @staticmethod
    def _documents(spot: Spot) -> Hole | None:
        for piece in spot.after:
            if not isinstance(piece, Hole):
                continue
            named = guess(piece.name or piece.expr)[1]
            if "memory" in named or "question" in piece.traits or _said_back(piece.name):
                continue
            if "context" in _all(piece) | named:
                return piece
        return None

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        traffic = context.traffic
        documents = traffic.document_tokens
        if spot.total + documents < context.target.least(spot.model):
            return None
        lost = spot.behind * traffic.share(spot.level) + documents * traffic.same_documents
        behind = spot.behind + documents
        return Cost(behind, 0, lost / behind, ORDER.severity(lost, firm(spot)))

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        documents = self._documents(spot)
        name = f"`{documents.name}`" if documents is not None else "the documents"
        text = f" and {spot.behind:,} static tokens" if spot.behind >= 16 else ""
        return (
            f"{who(spot)} precedes the documents {name} (about {context.traffic.document_tokens:,} "
            f"tokens){text}; {percent(cost.share)}. "
            "Documents first, the question last."
        )

    def also(self, spot: Spot) -> tuple[tuple[Slice, str], ...]:
        documents = self._documents(spot)
        if documents is None or documents.slice is None:
            return super().also(spot)
        return (*super().also(spot), (documents.slice, "the documents"))


def _all(hole: Hole) -> frozenset[str]:
    found: frozenset[str] = frozenset(hole.traits)
    for inner in hole.inner:
        if isinstance(inner, Hole):
            found |= _all(inner)
    return found


def _said_back(name: str) -> bool:
    """Whether a value is what came of an answer (an error, a verdict), and no document."""
    return name.rpartition(".")[2].rpartition("_")[2] in (
        "error",
        "errors",
        "exception",
        "traceback",
    )


def _asks(hole: Hole, name: str) -> bool:
    return hole.name == name or any(isinstance(p, Hole) and _asks(p, name) for p in hole.inner)
