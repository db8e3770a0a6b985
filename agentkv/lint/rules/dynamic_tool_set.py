"""KV502 dynamic-tool-set."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._request import ToolsRule
from agentkv.lint.template import Request


class DynamicToolSet(ToolsRule):
    """Which tools are sent depends on the user, the state or the turn.

    ## What it catches
    `[t for t in TOOLS if user.can(t)]`, tools that are added or removed while a conversation runs,
    tools that are retrieved for the question.

    ## Why it costs
    Tools are rendered in front of everything else, so each set of tools is a prefix of its own, and a
    change in the middle of a conversation computes all of it again.

    ## Bad
    ```python
    tools = [t for t in TOOLS if t.name in state.allowed]
    reply = client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    ```

    ## Good
    ```python
    reply = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        tools=TOOLS,
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": state.allowed}},
    )
    ```

    ## When it is wrong
    When there are a few fixed sets (roles), each with many calls.
    """

    code = "KV502"
    name = "dynamic-tool-set"
    rank = 21
    does = "Which tools are sent depends on the call"
    advice = "Send all of them, and say which are allowed (`allowed_tools`)."

    def catches(self, request: Request) -> bool:
        return request.tools is not None and request.tools.filtered

    def share(self, request: Request, context: Context) -> float:
        return context.traffic.share(
            request.tools.level if request.tools is not None else "unknown"
        )
