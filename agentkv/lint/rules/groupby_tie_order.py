"""KV305 groupby-tie-order."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._unstable import UnstableRule
from agentkv.lint.spot import Spot


class GroupbyTieOrder(UnstableRule):
    """Values that are sorted by a count or score change places where it is equal.

    ## What it catches
    `Counter(...).most_common()`, `sorted(..., key=score)` without a second key, written into a prompt.

    ## Why it costs
    What is equal stays in the order in which it came in, which differs from call to call: two words
    change places, and everything behind them is computed again.

    ## Bad
    ```python
    top = [tag for tag, _ in Counter(tags).most_common(5)]
    system = f"Frequent tags: {', '.join(top)}\\n{RULES}"
    ```

    ## Good
    ```python
    ranked = sorted(Counter(tags).items(), key=lambda item: (-item[1], item[0]))
    system = f"{RULES}\\nFrequent tags: {', '.join(tag for tag, _ in ranked[:5])}"
    ```

    ## When it is wrong
    When no two scores are ever equal.
    """

    code = "KV305"
    name = "groupby-tie-order"
    rank = 35
    does = "is sorted by something that may be equal"
    advice = "Add a second key that is unique."

    def catches(self, spot: Spot, context: Context) -> bool:
        # Documents by their score are another matter (KV306): there rank may be meant to be seen.
        return "tie_order" in spot.traits and not {"context", "score_order"} <= spot.traits
