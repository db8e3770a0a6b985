"""KV301 set-iteration."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._unstable import UnstableRule
from agentkv.lint.spot import Spot


class SetIteration(UnstableRule):
    """A set is written into a prompt in the order in which it iterates.

    ## What it catches
    `", ".join({"billing", "refunds"})`, a loop over a set, `str(a_set)`.

    ## Why it costs
    The hashes of strings are salted per process, so each process, restart and replica writes the set
    in another order: the same words, another prefix.

    ## Bad
    ```python
    TOPICS = {"billing", "refunds", "delivery"}
    system = f"You answer questions about {', '.join(TOPICS)}.\\n{RULES}"
    ```

    ## Good
    ```python
    system = f"You answer questions about {', '.join(sorted(TOPICS))}.\\n{RULES}"
    ```

    ## When it is wrong
    When the set is only asked whether it holds something. `sorted` needs elements that compare:
    strings do, mixed types do not.
    """

    code = "KV301"
    name = "set-iteration"
    rank = 18
    does = "iterates a set, whose order differs from process to process,"
    advice = "Sort it."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "set_order" in spot.traits
