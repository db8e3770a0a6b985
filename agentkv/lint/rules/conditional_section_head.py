"""KV204 conditional-section-head."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, shown, what
from agentkv.lint.spot import Spot


class ConditionalSectionHead(HoleRule):
    """A section that is there or not stands in front of static text.

    ## What it catches
    `{% if beta %}...{% endif %}`, `if debug: prompt += ...` in front of `--min-tokens` or more static
    tokens, where the condition is not known to be fixed for a deployment.

    ## Why it costs
    Each flag doubles the number of prefixes: with four flags there are sixteen, and a call reuses only
    those of its own combination.

    ## Bad
    ```jinja
    {% if beta %}You may use the beta features.{% endif %}
    ... (500 tokens of rules)
    ```

    ## Good
    ```jinja
    ... (500 tokens of rules)
    {% if beta %}You may use the beta features.{% endif %}
    ```

    ## When it is wrong
    When the flag is a setting of the deployment: `[tool.agentkv.lint.stability] beta = "deploy"`.
    The linter cannot know how often a flag changes, so this is reported at info.
    """

    code = "KV204"
    name = "conditional-section-head"
    certainty = "heuristic"
    rank = 70
    inside = False

    def catches(self, spot: Spot, context: Context) -> bool:
        return (
            "conditional" in spot.traits
            and spot.level not in ("build", "deploy")
            and spot.behind >= context.min_tokens
        )

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        return (
            f"{shown(spot)} is there or not, and precedes {what(cost, context)}: each combination of "
            "such flags has a prefix of its own. Put optional sections behind what is always there."
        )
