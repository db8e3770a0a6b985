"""KV208 examples-after-dynamic."""

from __future__ import annotations

import re

from agentkv.lint.context import Context
from agentkv.lint.price import ORDER, Cost, nominal
from agentkv.lint.rules._hole import HoleRule, firm, percent, who
from agentkv.lint.source import Slice
from agentkv.lint.spot import Spot, text_behind
from agentkv.lint.template import Hole

_EXAMPLES = re.compile(
    r"^[ \t>#*\-\d.)]*(?:<examples?>|\[?(?:here (?:are|is) )?(?:some |an |a few |more )?(?:few[- ]?shot )?(?:examples?|demonstrations?|"
    r"sample (?:dialog(?:ue)?s?|conversations?))\b[^\n.]{0,40}(?::|\]|\*\*|$))",
    re.IGNORECASE | re.MULTILINE,
)
_PAIR = re.compile(
    r"^(?:Q|Question|Input|User|Human|Customer)\s*\d*:.*\n(?:.*\n){0,3}?(?:A|Answer|Output|Assistant|AI|Response|Label)\s*\d*:",
    re.IGNORECASE | re.MULTILINE,
)


class ExamplesAfterDynamic(HoleRule):
    """Fixed examples stand behind something that changes.

    ## What it catches
    Few-shot examples (a section with that heading, question and answer pairs, a slot for examples,
    fixed turns of an assistant) behind user data, a question or documents.

    ## Why it costs
    Examples are among the longest fixed parts of a prompt. Behind a value that changes they are
    computed again in every call.

    ## Bad
    ```jinja
    The customer is {{ customer }}.

    Examples:
    Q: ...
    A: ...
    ```

    ## Good
    ```jinja
    Examples:
    Q: ...
    A: ...

    The customer is {{ customer }}.
    ```

    ## When it is wrong
    When the examples are chosen for the request (KV309 speaks of those).
    """

    code = "KV208"
    name = "examples-after-dynamic"
    rank = 42
    inside = False
    advice = "Put the examples in front of it."

    def catches(self, spot: Spot, context: Context) -> bool:
        if not spot.dynamic or spot.placeholder or spot.traits & {"examples", "selector"}:
            return False
        if self._slot(spot) is not None:
            return True
        shown = self._shown(spot, context)
        return shown >= context.min_tokens and shown * 2 >= spot.behind

    @staticmethod
    def _slot(spot: Spot) -> Hole | None:
        for piece in spot.after:
            if isinstance(piece, Hole) and "examples" in piece.traits:
                fixed = piece.level in ("build", "deploy", "unknown")
                return piece if fixed and not piece.traits & {"selector", "shuffled"} else None
        return None

    @staticmethod
    def _shown(spot: Spot, context: Context) -> int:
        text = text_behind(spot)
        starts = [m.start() for p in (_EXAMPLES, _PAIR) if (m := p.search(text)) is not None]
        if starts:
            return context.count(text[min(starts) :])
        template = spot.template
        return (
            sum(
                context.tokens(p)
                for i, part in enumerate(template.parts)
                if i > spot.part
                and part.role == "assistant"
                and part.static
                and i + 1 < len(template.parts)
                for p in part.pieces
            )
            * 2
        )

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
            f"{who(spot)} precedes fixed examples{named}, about {cost.behind:,} tokens with what "
            f"follows; {percent(cost.share)}. {self.advice}"
        )

    def also(self, spot: Spot) -> tuple[tuple[Slice, str], ...]:
        slot = self._slot(spot)
        if slot is None or slot.slice is None:
            return super().also(spot)
        return (*super().also(spot), (slot.slice, "the examples"))
