"""KV216 turn-data-before-history."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class TurnDataBeforeHistory(HoleRule):
    """Something that is new in each turn stands in front of the conversation.

    ## What it catches
    Documents, results or state of this turn in the system message, even at its very end, with the
    conversation behind it.

    ## Why it costs
    The system message is the same length as before, but it is another text in each turn: the
    conversation behind it, which only grows, is computed again in each turn.

    ## Bad
    ```python
    ChatPromptTemplate.from_messages([
        ("system", RULES + "\\n\\n{context}"),
        MessagesPlaceholder("history"),
        ("human", "{question}"),
    ])
    ```

    ## Good
    ```python
    ChatPromptTemplate.from_messages([
        ("system", RULES),
        MessagesPlaceholder("history"),
        ("human", "<context>\\n{context}\\n</context>\\n\\n{question}"),
    ])
    ```

    ## When it is wrong
    When the documents are read once and stay the same for the session:
    `[tool.agentkv.lint.stability] context = "session"`.
    """

    code = "KV216"
    name = "turn-data-before-history"
    rank = 47
    inside = False
    most = "warning"
    advice = "Put what belongs to this turn behind the conversation."

    def catches(self, spot: Spot, context: Context) -> bool:
        return (
            spot.level in ("turn", "call")
            and spot.history
            and spot.role in ("system", "unknown")
            and not spot.placeholder
            and "history" not in spot.traits
            and spot.behind < context.min_tokens
        )
