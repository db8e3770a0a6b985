"""KV203 memory-in-system-prompt."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class MemoryInSystemPrompt(HoleRule):
    """Memories of the user are part of the system prompt, in front of what is shared.

    ## What it catches
    `system += memories` and its kin: memories in a system message with static text behind them, or
    read again at every turn with the conversation behind them.

    ## Why it costs
    Memories differ by user and grow while a conversation runs. In the system message they stand in
    front of rules, examples and the whole conversation, and each new memory computes those again.

    ## Bad
    ```python
    system = f"Memories of the user:\\n{memories}\\n\\n{RULES}"
    ```

    ## Good
    ```python
    messages = [
        {"role": "system", "content": RULES},
        {"role": "user", "content": f"<memories>\\n{memories}\\n</memories>"},
        *history,
    ]
    ```

    ## When it is wrong
    When memories are read once a session and nothing that is shared stands behind them.
    """

    code = "KV203"
    name = "memory-in-system-prompt"
    rank = 38
    inside = False
    advice = "Give them in a message of their own behind the shared part."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "memory" in spot.traits and spot.dynamic and spot.role == "system"
