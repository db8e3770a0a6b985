"""KV103 random-id-in-prefix."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class RandomIdInPrefix(HoleRule):
    """An id that is new in every call (or session) stands in front of static text.

    ## What it catches
    `uuid4()`, `secrets.token_hex()`, a request, run or trace id, a hash of the time, in a prompt with
    static text behind it.

    ## Why it costs
    No two prompts begin alike, so nothing of them is ever reused. The model hardly ever needs the id.

    ## Bad
    ```python
    system = f"Request {uuid4()}\\n{RULES}"
    ```

    ## Good
    ```python
    client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "system", "content": RULES}, user],
        metadata={"request_id": str(uuid4())},
    )
    ```

    ## When it is wrong
    When the id is a constant of the code, or is not part of the text (headers, `metadata=`,
    `user=`). A session's id costs the sharing between sessions only, and is priced so.
    """

    code = "KV103"
    name = "random-id-in-prefix"
    rank = 20
    scale = VOLATILE
    advice = "Send the id as metadata; where the model needs it, put it last."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "random_id" in spot.traits and spot.dynamic
