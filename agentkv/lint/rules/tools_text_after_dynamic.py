"""KV211 tools-text-after-dynamic."""

from __future__ import annotations

import re

from agentkv.lint.context import Context
from agentkv.lint.price import ORDER, Cost, nominal
from agentkv.lint.rules._hole import HoleRule, firm, percent, who
from agentkv.lint.source import Slice
from agentkv.lint.spot import Spot, text_behind
from agentkv.lint.template import Hole

_TOOLS = re.compile(
    r"<tools>|^[ \t#*]*(?:available |the following )?(?:tools|functions)\s*(?:available)?\s*:|"
    r"you (?:have access to|can use) (?:the following|these) (?:tools|functions)",
    re.IGNORECASE | re.MULTILINE,
)


class ToolsTextAfterDynamic(HoleRule):
    """A list of tools is written as text behind something that changes.

    ## What it catches
    `{tools}`, `{% for tool in tools %}` or a section that lists tools, behind user data, a question or
    documents.

    ## Why it costs
    Tool descriptions are long and the same in every call. They belong to the front.

    ## Bad
    ```jinja
    You work for {{ user_name }}.
    You have access to the following tools:
    {{ tools }}
    ```

    ## Good
    ```jinja
    You have access to the following tools:
    {{ tools }}
    You work for {{ user_name }}.
    ```

    ## When it is wrong
    When the tools themselves change from call to call (KV502 speaks of those).
    """

    code = "KV211"
    name = "tools-text-after-dynamic"
    rank = 44
    inside = False

    def catches(self, spot: Spot, context: Context) -> bool:
        if not spot.dynamic or spot.placeholder or "tools" in spot.traits:
            return False
        if spot.role == "tool":
            return False  # a result that names tools, appended to the conversation
        if self._slot(spot) is not None:
            return True
        return self._shown(spot, context) >= context.min_tokens

    @staticmethod
    def _slot(spot: Spot) -> Hole | None:
        for piece in spot.after:
            if isinstance(piece, Hole) and "tools" in piece.traits:
                return piece if piece.level in ("build", "deploy", "unknown") else None
        return None

    @staticmethod
    def _shown(spot: Spot, context: Context) -> int:
        text = text_behind(spot)
        found = _TOOLS.search(text)
        return context.count(text[found.start() :]) if found is not None else 0

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
            f"{who(spot)} precedes the list of tools{named}, about {cost.behind:,} tokens with what "
            f"follows; {percent(cost.share)}. List the tools first."
        )

    def also(self, spot: Spot) -> tuple[tuple[Slice, str], ...]:
        slot = self._slot(spot)
        if slot is None or slot.slice is None:
            return super().also(spot)
        return (*super().also(spot), (slot.slice, "the tools"))
