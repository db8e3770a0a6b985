"""KV309 fewshot-selector-dynamic."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class FewshotSelectorDynamic(HoleRule):
    """Examples that are selected for the question stand in front of static text.

    ## What it catches
    An example selector (by similarity, by length) or `KNNFewShot`, with `--min-tokens` or more static
    tokens behind its examples.

    ## Why it costs
    Each question has other examples, so the rules behind them are computed in every call.

    ## Bad
    ```python
    prompt = f"{selected_examples}\\n\\n{RULES}\\n\\n{question}"
    ```

    ## Good
    ```python
    prompt = f"{RULES}\\n\\n{selected_examples}\\n\\n{question}"
    ```

    ## When it is wrong
    When the selector chooses one of a few fixed sets: each of them is a prefix that is met again.
    """

    code = "KV309"
    name = "fewshot-selector-dynamic"
    rank = 39
    inside = False
    most = "warning"
    advice = (
        "Rules first, then the examples that were selected; or a few fixed sets to choose from."
    )

    def catches(self, spot: Spot, context: Context) -> bool:
        return "selector" in spot.traits and spot.behind >= context.min_tokens
