"""KV503 dynamic-tool-schema."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._request import ToolsRule
from agentkv.lint.template import Request


class DynamicToolSchema(ToolsRule):
    """A tool's description or schema holds a value of the run time.

    ## What it catches
    A date in a description, an `enum` of ids that are live, a default that is the user's.

    ## Why it costs
    Tools are rendered in front of everything else: when the value changes, all of the prompt is
    computed again.

    ## Bad
    ```python
    tool = {"name": "book", "description": f"Books a room. Today is {date.today()}.", ...}
    ```

    ## Good
    ```python
    tool = {"name": "book", "description": "Books a room. `today` tells the date.", ...}
    ```

    ## When it is wrong
    When the value is fixed for a deployment.
    """

    code = "KV503"
    name = "dynamic-tool-schema"
    rank = 19
    does = "A schema holds a value of the run time"
    advice = "Move it into a message, or into what a tool returns."

    def catches(self, request: Request) -> bool:
        return request.tools is not None and request.tools.dynamic_schema

    def share(self, request: Request, context: Context) -> float:
        return context.traffic.share(
            request.tools.level if request.tools is not None else "unknown"
        )
