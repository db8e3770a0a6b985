"""KV506 params-in-prefix-change."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._request import SettingRule
from agentkv.lint.rules.response_format_varies import varies
from agentkv.lint.template import Request, Setting


class ParamsInPrefixChange(SettingRule):
    """A setting that is part of the prompt, or of the cache's key, is switched from call to call.

    ## What it catches
    `tool_choice`, thinking and its budget, reasoning effort, citations, web search, template
    arguments, the detail of images, where they depend on the turn or the user.

    ## Why it costs
    These are rendered into the prompt or compared with it: switched in the middle of a conversation,
    they invalidate at least the messages. Temperature, `top_p` and `max_tokens` never matter.

    ## Bad
    ```python
    reply = client.messages.create(..., thinking=BUDGET if hard(question) else OFF)
    ```

    ## Good
    ```python
    reply = client.messages.create(..., thinking=BUDGET)
    ```

    ## When it is wrong
    When the engine masks tools at decode time and leaves the prompt alone (agentkv does for
    `tool_choice`), or the switch happens once.
    """

    code = "KV506"
    name = "params-in-prefix-change"
    rank = 23
    names = frozenset(
        [
            "tool_choice",
            "toolChoice",
            "thinking",
            "reasoning_effort",
            "reasoning",
            "effort",
            "citations",
            "web_search_options",
            "chat_template_kwargs",
            "parallel_tool_calls",
            "betas",
            "detail",
        ]
    )
    advice = "Keep it the same for the conversation."

    def catches(self, setting: Setting, request: Request, context: Context) -> bool:
        return varies(setting)

    def says(self, setting: Setting, request: Request) -> str:
        return f"`{setting.name}` varies from call to call, and it is compared with the prompt"
