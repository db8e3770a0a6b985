"""KV602 chat-template-tail-dependent."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._request import HistoryRule
from agentkv.lint.template import HistoryOp, Request


class ChatTemplateTailDependent(HistoryRule):
    """A chat template writes old messages otherwise when new ones follow.

    ## What it catches
    Templates that move the tools to the last user message, or that render a message by `loop.last`,
    by the index of the last user message, or by whether it is the newest.

    ## Why it costs
    With each new message an older one changes, so everything behind it is computed again. Mistral
    Nemo's template writes the tools before the last user message: 61 % of the last prompt is reused,
    where others reuse all of it.

    ## Bad
    ```jinja
    {%- if loop.last and tools %}{{ tools | tojson }}{% endif %}
    ```

    ## Good
    ```jinja
    {%- if loop.first and tools %}{{ tools | tojson }}{% endif %}
    ```

    ## When it is wrong
    A generation prompt at the very end is fine, and not reported.
    """

    code = "KV602"
    name = "chat-template-tail-dependent"
    rank = 6
    kinds = ("tail_dependent",)
    does = "The template writes old messages otherwise when new ones follow"
    advice = "Use the template's switch for that if it has one, or a template that only appends."

    def catches(self, op: HistoryOp, request: Request) -> bool:
        return op.kind in self.kinds

    def share(self, op: HistoryOp, context: Context) -> float:
        return context.traffic.share("turn")
