"""KV107 object-repr-in-prompt."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class ObjectReprInPrompt(HoleRule):
    """An object is written into a prompt by its default `repr`, which holds an address.

    ## What it catches
    `f"{client}"` where the class defines neither `__str__` nor `__repr__`: `<Client object at
    0x7f3c...>`.

    ## Why it costs
    The address is another in each process (and for each object), so the text behind it is computed
    again after every restart and on every replica, and the model learns nothing from it.

    ## Bad
    ```python
    system = f"You use {client}.\\n{RULES}"
    ```

    ## Good
    ```python
    system = f"You use {client.name}.\\n{RULES}"
    ```

    ## When it is wrong
    When the class gets its `__str__` from somewhere that the linter does not see (a base class of
    another package).
    """

    code = "KV107"
    name = "object-repr-in-prompt"
    rank = 24
    scale = VOLATILE
    most = "warning"
    advice = "Write the fields that the model needs."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "object_repr" in spot.traits
