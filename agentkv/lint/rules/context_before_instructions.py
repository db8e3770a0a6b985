"""KV207 context-before-instructions."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class ContextBeforeInstructions(HoleRule):
    """Documents or other data stand in front of the instructions.

    ## What it catches
    A slot for documents, search results, a page, a summary, with `--min-tokens` or more static tokens
    of instructions behind it.

    ## Why it costs
    The instructions are the same in every call and the data is not, so every call computes the
    instructions again.

    ## Bad
    ```python
    prompt = f"{context}\\n\\nUsing the text above, write a report. ... (800 tokens of rules)"
    ```

    ## Good
    ```python
    prompt = f"Write a report from the text in <text>. ... (800 tokens of rules)\\n<text>{context}</text>"
    ```

    ## When it is wrong
    When rules are repeated behind long documents on purpose, so that the model sees them last: keep
    the rules in front and repeat a short reminder (less than `--min-tokens`).
    """

    code = "KV207"
    name = "context-before-instructions"
    rank = 46
    inside = False
    advice = "Instructions first, then the data; a short reminder may stay at the end."

    def catches(self, spot: Spot, context: Context) -> bool:
        data = spot.traits & {"context", "summary", "scratchpad", "image"}
        return (
            bool(data)
            and spot.dynamic
            and not spot.placeholder
            and spot.behind >= context.min_tokens
        )
