"""KV210 schema-text-after-dynamic."""

from __future__ import annotations

import re

from agentkv.lint.context import Context
from agentkv.lint.price import ORDER, Cost, nominal
from agentkv.lint.rules._hole import HoleRule, firm, percent, who
from agentkv.lint.source import Slice
from agentkv.lint.spot import Spot, text_behind
from agentkv.lint.template import Hole

_SCHEMA = re.compile(
    r'"(?:type|\$schema)"\s*:\s*"[^"]+"[^\0]{0,2000}"(?:properties|items|enum)"\s*:|"properties"\s*:\s*\{'
)


class SchemaTextAfterDynamic(HoleRule):
    """The format of the answer is described behind something that changes.

    ## What it catches
    `{format_instructions}` or a JSON schema as text behind a question, documents or user data.

    ## Why it costs
    The schema is the same in every call, and with its descriptions often some hundred tokens.

    ## Bad
    ```python
    PromptTemplate.from_template("{query}\\n\\n{format_instructions}")
    ```

    ## Good
    ```python
    PromptTemplate.from_template("{format_instructions}\\n\\n{query}")
    ```

    ## When it is wrong
    A short reminder at the end ("Answer in JSON.") is fine, and not reported.
    """

    code = "KV210"
    name = "schema-text-after-dynamic"
    rank = 43
    inside = False

    def catches(self, spot: Spot, context: Context) -> bool:
        if not spot.dynamic or spot.placeholder or "schema" in spot.traits:
            return False
        if self._slot(spot) is not None:
            return True
        return spot.behind >= context.min_tokens and bool(_SCHEMA.search(text_behind(spot)))

    @staticmethod
    def _slot(spot: Spot) -> Hole | None:
        for piece in spot.after:
            if isinstance(piece, Hole) and "schema" in piece.traits:
                return piece if piece.level in ("build", "deploy", "unknown") else None
        return None

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        slot = self._slot(spot)
        if slot is None:
            return super().cost(spot, context)
        behind = spot.behind + nominal(slot, context)
        share = context.traffic.share(spot.level)
        return Cost(behind, 0, share, ORDER.severity(behind * share, firm(spot)))

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        slot = self._slot(spot)
        named = f" (`{slot.name}`)" if slot is not None else ""
        return (
            f"{who(spot)} precedes the description of the answer's format{named}, about "
            f"{cost.behind:,} tokens with what follows; {percent(cost.share)}. "
            "Describe the format first."
        )

    def also(self, spot: Spot) -> tuple[tuple[Slice, str], ...]:
        slot = self._slot(spot)
        if slot is None or slot.slice is None:
            return super().also(spot)
        return (*super().also(spot), (slot.slice, "the format"))
