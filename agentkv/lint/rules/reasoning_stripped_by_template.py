"""KV603 reasoning-stripped-by-template."""

from __future__ import annotations

from agentkv.lint.rules._request import HistoryRule
from agentkv.lint.template import HistoryOp, Request


class ReasoningStrippedByTemplate(HistoryRule):
    """A chat template leaves the thoughts of earlier answers out.

    ## What it catches
    Templates that keep `<think>...</think>` only behind the last user message, or split it off from
    the content of old messages.

    ## Why it costs
    The engine computed an answer with its thoughts. In the next turn the template writes it without
    them: everything behind the first thought is computed again, once a turn.

    ## Bad
    ```jinja
    {%- set content = content.split("</think>")[-1] %}
    ```

    ## Good
    ```jinja
    {{- "<think>" + message.reasoning_content + "</think>" + content }}
    ```

    ## When it is wrong
    When thinking is off, or conversations have one turn. Old thoughts also fill the context; models
    are often trained without them.
    """

    code = "KV603"
    name = "reasoning-stripped-by-template"
    rank = 7
    kinds = ("reasoning_stripped",)
    does = "The template leaves the thoughts of earlier answers out"
    advice = (
        "Where the template has a switch to keep them, set it for agents with many calls a turn."
    )

    def catches(self, op: HistoryOp, request: Request) -> bool:
        return op.kind in self.kinds and request.api == "chat_template"
