"""KV109 partial-variable-callable."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import VOLATILE
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot


class PartialVariableCallable(HoleRule):
    """A template variable is bound to a function that is called at each rendering.

    ## What it catches
    `partial_variables={"date": get_now}`, `.partial(date=get_now)`, LlamaIndex `function_mappings`,
    where the function reads a clock or another source that changes, with static text behind it.

    ## Why it costs
    The template looks constant where it is used, and is different in every call.

    ## Bad
    ```python
    prompt = PromptTemplate.from_template(
        "It is {now}.\\n" + RULES, partial_variables={"now": lambda: datetime.now().isoformat()}
    )
    ```

    ## Good
    ```python
    prompt = ChatPromptTemplate.from_messages([("system", RULES), ("human", "{question}\\n(It is {now}.)")])
    ```

    ## When it is wrong
    When the function returns the same text in every call.
    """

    code = "KV109"
    name = "partial-variable-callable"
    rank = 10
    scale = VOLATILE
    advice = "Fill the variable in the last message instead."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "callable_partial" in spot.traits and spot.dynamic
