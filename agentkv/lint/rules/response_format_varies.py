"""KV505 response-format-varies."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._request import SettingRule
from agentkv.lint.spot import DYNAMIC
from agentkv.lint.template import Request, Setting


class ResponseFormatVaries(SettingRule):
    """The schema of the answer is another one from call to call, or is there in some calls only.

    ## What it catches
    `response_format=Schema if last else None`, a schema that is chosen by the turn.

    ## Why it costs
    Providers render the schema in front of the conversation (OpenAI: in front of the system message),
    so a call with another schema shares nothing with the last one.

    ## Bad
    ```python
    reply = client.beta.chat.completions.parse(
        model=MODEL, messages=messages, response_format=Answer if final else Step
    )
    ```

    ## Good
    ```python
    reply = client.beta.chat.completions.parse(model=MODEL, messages=messages, response_format=StepOrAnswer)
    ```

    ## When it is wrong
    When the calls belong to different prompts anyway. An engine that constrains the answer by grammar
    (agentkv, vLLM, SGLang) leaves the prompt alone.
    """

    code = "KV505"
    name = "response-format-varies"
    rank = 22
    names = frozenset(
        [
            "response_format",
            "text_format",
            "output_schema",
            "output_format",
            "response_schema",
            "text",
            "format",
            "response_model",
            "output_config",
        ]
    )
    advice = "Use one schema for the conversation."

    def catches(self, setting: Setting, request: Request, context: Context) -> bool:
        return varies(setting)

    def says(self, setting: Setting, request: Request) -> str:
        return (
            f"`{setting.name}` varies from call to call, and schemas stand in front of the messages"
        )


def varies(setting: Setting) -> bool:
    """Whether a setting is seen to change: by its level, or by a condition that is not fixed."""
    if setting.level in DYNAMIC:
        return True
    return "conditional" in setting.traits and setting.level not in ("build", "deploy")
