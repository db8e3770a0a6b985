"""KV202 user-data-before-shared."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class UserDataBeforeShared(HoleRule):
    """A user's or tenant's data stands in front of text that all of them share.

    ## What it catches
    Names, ids, e-mail addresses, profiles, locales, tenant ids in front of `--min-tokens` or more
    static tokens.

    ## Why it costs
    The text behind is the same for everybody, but it is reused by calls of the same user only. With
    many users nearly every conversation begins cold.

    ## Bad
    ```python
    system = f"You help {name} (id {uid}).\\n{RULES}"
    ```

    ## Good
    ```python
    system = f"{RULES}\\n\\n<user>\\nname: {name}\\nid: {uid}\\n</user>"
    ```

    ## When it is wrong
    When the application has one user, or the name is that of a brand or a deployment. A name that
    stands everywhere in the prompt is what the prompt is about; that is reported at info.
    """

    code = "KV202"
    name = "user-data-before-shared"
    rank = 45
    inside = False
    advice = "Put the shared text first, and what is known of the user behind it."

    def catches(self, spot: Spot, context: Context) -> bool:
        about = spot.traits & {"user_data", "tenant_data", "memory"}
        return bool(about) and spot.dynamic and spot.behind >= context.min_tokens
