"""KV104 random-content-in-prefix."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class RandomContentInPrefix(HoleRule):
    """Text that is drawn at random stands in front of static text.

    ## What it catches
    `random.choice(GREETINGS)` and its kin in a prompt, with static text behind it.

    ## Why it costs
    With n texts to choose from there are n prefixes, and the chance to meet the last one is 1/n.

    ## Bad
    ```python
    system = f"{random.choice(GREETINGS)}\\n{RULES}"
    ```

    ## Good
    ```python
    system = RULES
    user = f"{question}\\n\\nGreet with: {random.choice(GREETINGS)}"
    ```

    ## When it is wrong
    When the generator is seeded with a constant, or the choice is made once for a process or session
    and kept.
    """

    code = "KV104"
    name = "random-content-in-prefix"
    rank = 21
    scale = VOLATILE
    advice = "Use one fixed text, or draw it in the last user message."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "random_content" in spot.traits and spot.dynamic
