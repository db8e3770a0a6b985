"""KV408 mid-prefix-trim."""

from __future__ import annotations

from agentkv.lint.rules._request import HistoryRule


class MidPrefixTrim(HistoryRule):
    """The middle of a conversation or a document is cut out, at a place that moves.

    ## What it catches
    "Middle-out" cuts: the first and the last part are kept, and what is between them is dropped, anew
    in each turn.

    ## Why it costs
    The cut moves with each message, so everything behind it is computed again in every turn.

    ## Bad
    ```python
    messages = messages[:2] + messages[-20:]
    ```

    ## Good
    ```python
    if len(messages) > 60:  # rarely, to a fixed size
        messages = messages[:2] + messages[-20:]
    ```

    ## When it is wrong
    When it happens once, at the limit. This is advice, at info.
    """

    code = "KV408"
    name = "mid-prefix-trim"
    certainty = "heuristic"
    rank = 34
    kinds = ("mid_trim",)
    does = "The middle is cut out at a place that moves in each turn"
    advice = "Cut rarely, and at fixed places."
