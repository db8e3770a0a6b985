"""KV201 dynamic-before-static."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class DynamicBeforeStatic(HoleRule):
    """Something that changes stands in front of text that does not.

    ## What it catches
    Any variable of which it is known or plain by its name that it changes by tenant, user, session or
    turn, with `--min-tokens` (64) or more static tokens behind it. More special rules of this family
    go first: user data, memories, questions, documents, examples.

    ## Why it costs
    The static text is the same in every call, but it is reused only by calls that have the same
    value in front of it.

    ## Bad
    ```jinja
    Topic: {{ topic }}

    Write in plain words. ... (300 tokens of rules)
    ```

    ## Good
    ```jinja
    Write in plain words. ... (300 tokens of rules)

    Topic: {{ topic }}
    ```

    ## When it is wrong
    When the variable has one value in practice: `[tool.agentkv.lint.stability] topic = "deploy"`, or
    `{# agentkv: stable=deploy #}` in the template.
    """

    code = "KV201"
    name = "dynamic-before-static"
    rank = 60
    inside = False
    advice = "Put what changes less often first."

    def catches(self, spot: Spot, context: Context) -> bool:
        return spot.dynamic and not spot.placeholder and spot.behind >= context.min_tokens
