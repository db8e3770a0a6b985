"""KV303 unsorted-listing."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._unstable import UnstableRule
from agentkv.lint.spot import Spot


class UnsortedListing(UnstableRule):
    """A listing is written into a prompt in the order in which the system gave it.

    ## What it catches
    `os.listdir`, `glob`, `Path.iterdir`, a query without `ORDER BY`, not sorted before it is part of
    a prompt.

    ## Why it costs
    A file system or a database gives the same names in another order on another machine, or after
    some writes. The prompt says the same and has another prefix.

    ## Bad
    ```python
    system = "Files:\\n" + "\\n".join(os.listdir(root)) + RULES
    ```

    ## Good
    ```python
    system = "Files:\\n" + "\\n".join(sorted(os.listdir(root))) + RULES
    ```

    ## When it is wrong
    When it is sorted later, where the linter does not see it, or holds a single name.
    """

    code = "KV303"
    name = "unsorted-listing"
    rank = 18
    does = "is a listing in no certain order"
    advice = "Sort it."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "listing" in spot.traits
