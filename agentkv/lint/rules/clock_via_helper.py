"""KV111 clock-via-helper."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class ClockViaHelper(HoleRule):
    """A function that is called for a part of the prompt reads the clock somewhere inside.

    ## What it catches
    `f"{header()}\\n{RULES}"` where `header`, or what it calls in any module of the project, uses
    `datetime.now()` or another clock.

    ## Why it costs
    As for KV101: everything behind it is computed again in every call. The clock is only harder to
    see, since it is in another file.

    ## Bad
    ```python
    def header() -> str:
        return f"Report of {stamp()}"  # stamp() returns datetime.now().isoformat()


    system = f"{header()}\\n{RULES}"
    ```

    ## Good
    ```python
    system = RULES
    user = f"{question}\\n\\n{header()}"
    ```

    ## When it is wrong
    When the helper's result is kept for the life of the process (`lru_cache` is seen; a cache of your
    own may not be).
    """

    code = "KV111"
    name = "clock-via-helper"
    rank = 13
    scale = VOLATILE
    advice = "Take the time out of the helper, and put it into the last user message."

    def catches(self, spot: Spot, context: Context) -> bool:
        return {"clock", "via_helper"} <= spot.traits and spot.dynamic
