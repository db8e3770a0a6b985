"""KV206 question-in-system."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class QuestionInSystem(HoleRule):
    """The user's question is rendered into the system message.

    ## What it catches
    A question, query or input in a system message with static text or a conversation behind it.

    ## Why it costs
    The system message is the first of the prompt. When it holds the question it is another in each
    turn, and the whole conversation behind it is computed again. The user's words also get the
    authority of the system message.

    ## Bad
    ```text
    system:
    Answer politely. The customer asks: {{question}}
    Rules: ...

    user:
    {{history}}
    ```

    ## Good
    ```text
    system:
    Answer politely.
    Rules: ...

    user:
    {{history}}
    {{question}}
    ```

    ## When it is wrong
    When the prompt is a single call without a conversation, and nothing stands behind the question.
    """

    code = "KV206"
    name = "question-in-system"
    rank = 40
    inside = False
    advice = "Put the question into the user's message."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "question" in spot.traits and spot.role == "system" and spot.dynamic
