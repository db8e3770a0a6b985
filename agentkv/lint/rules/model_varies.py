"""KV507 model-varies."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._request import SettingRule
from agentkv.lint.template import Request, Setting


class ModelVaries(SettingRule):
    """The model is chosen anew for each call.

    ## What it catches
    A router, an A/B test or `random.choice(MODELS)` in the call itself.

    ## Why it costs
    Caches belong to one model. A conversation that changes models computes everything again at each
    change, and also when it comes back.

    ## Bad
    ```python
    model = SMALL if len(question) < 80 else LARGE
    reply = client.chat.completions.create(model=model, messages=messages)
    ```

    ## Good
    ```python
    class Session:
        def __init__(self, first: str) -> None:
            self.model = SMALL if len(first) < 80 else LARGE  # once a session
    ```

    ## When it is wrong
    When the other model is a fallback after an error, or calls do not share a conversation.
    """

    code = "KV507"
    name = "model-varies"
    rank = 22
    names = frozenset({"model", "modelId", "model_id"})
    advice = "Choose once for a session."

    def catches(self, setting: Setting, request: Request, context: Context) -> bool:
        chance = setting.traits & {"random_content", "shuffled"}
        return bool(chance) or setting.level in ("turn", "call")

    def says(self, setting: Setting, request: Request) -> str:
        return f"`{setting.name}` is chosen for each call, and caches belong to one model"
