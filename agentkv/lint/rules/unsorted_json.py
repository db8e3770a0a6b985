"""KV302 unsorted-json."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, shown, what
from agentkv.lint.spot import Spot


class UnsortedJson(HoleRule):
    """A dict of the run time is dumped as JSON without an order of its keys.

    ## What it catches
    `json.dumps(profile)` without `sort_keys=True` in front of `--min-tokens` or more static tokens.

    ## Why it costs
    The keys stand in the order in which they were inserted. A dict that is put together from several
    sources, or that came from another service, may be equal and yet be written in another order.

    ## Bad
    ```python
    system = f"Settings: {json.dumps(settings_of(request))}\\n{RULES}"
    ```

    ## Good
    ```python
    system = f"Settings: {json.dumps(settings_of(request), sort_keys=True)}\\n{RULES}"
    ```

    ## When it is wrong
    Dict literals and models of pydantic keep their order. The order of a schema's `properties` has a
    meaning (answers are written in that order): never sort those. This is advice, at info.
    """

    code = "KV302"
    name = "unsorted-json"
    certainty = "heuristic"
    rank = 72

    def catches(self, spot: Spot, context: Context) -> bool:
        return (
            "unsorted_json" in spot.traits
            and spot.level not in ("build", "turn", "call")
            and "schema_order" not in spot.traits
            and spot.behind >= context.min_tokens
        )

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        return (
            f"{shown(spot)} is dumped in the order of its keys and precedes {what(cost, context)}. "
            "If the order is no part of the meaning, dump it with sort_keys=True."
        )
