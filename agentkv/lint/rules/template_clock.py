"""KV110 template-clock."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class TemplateClock(HoleRule):
    """A template reads the clock itself, in front of static text.

    ## What it catches
    `{{ now() }}` in Jinja, `{{time.Date}}` in Semantic Kernel, `strftime_now(...)`: functions of the
    template language, in a prompt with static text behind them.

    ## Why it costs
    The value changes at every rendering, and nobody who calls the template can do anything about it.

    ## Bad
    ```jinja
    It is {{ now() }}.
    {{ rules }}
    ```

    ## Good
    ```jinja
    {{ rules }}

    {{ question }}
    (It is {{ now_from_caller }}.)
    ```

    ## When it is wrong
    When the function is the project's own and returns a constant. Comments (`{# #}`) and raw blocks
    are not looked at. Chat templates of models have a rule of their own, KV601.
    """

    code = "KV110"
    name = "template-clock"
    rank = 11
    scale = VOLATILE
    advice = "Make it a variable, and put it at the tail."

    def catches(self, spot: Spot, context: Context) -> bool:
        template = spot.template
        written = template.syntax in ("jinja", "mustache")
        return (
            bool(spot.traits & {"clock", "date"})
            and spot.dynamic
            and written
            and template.format != "chat_template"
            and spot.hole.known
            and not spot.hole.inner
        )
