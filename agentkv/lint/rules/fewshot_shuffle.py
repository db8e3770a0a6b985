"""KV308 fewshot-shuffle."""

from __future__ import annotations

import re

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._unstable import UnstableRule
from agentkv.lint.spot import Spot

_EXAMPLES = re.compile(r"example|shot|demo", re.IGNORECASE)


class FewshotShuffle(UnstableRule):
    """Examples are drawn or shuffled for each call.

    ## What it catches
    `random.sample(EXAMPLES, 3)`, `random.shuffle(examples)` in a prompt.

    ## Why it costs
    Examples are long and stand near the front. Each call has others, or the same in another order,
    and computes them and everything behind them.

    ## Bad
    ```python
    shots = random.sample(EXAMPLES, 3)
    system = RULES + "\\n\\n".join(shots)
    ```

    ## Good
    ```python
    SHOTS = EXAMPLES[:3]
    system = RULES + "\\n\\n".join(SHOTS)
    ```

    ## When it is wrong
    In an evaluation that measures the effect of their order, or with a seed that is a constant.
    """

    code = "KV308"
    name = "fewshot-shuffle"
    rank = 17
    scale = VOLATILE
    does = "is drawn or shuffled for each call"
    advice = "Choose the examples once, and keep their order."

    def catches(self, spot: Spot, context: Context) -> bool:
        examples = "examples" in spot.traits or bool(
            _EXAMPLES.search(spot.hole.expr + " " + spot.hole.name)
        )
        return "shuffled" in spot.traits and examples
