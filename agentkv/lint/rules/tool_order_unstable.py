"""KV501 tool-order-unstable."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.rules._request import ToolsRule
from agentkv.lint.template import Request

_ORDER = frozenset({"set_order", "listing", "completion_order", "shuffled", "tie_order"})


class ToolOrderUnstable(ToolsRule):
    """Tools are sent in an order that is not certain.

    ## What it catches
    Tools from a set, from `list_tools()` of an MCP server, from a directory listing or in the order in
    which servers answered, not sorted.

    ## Why it costs
    Tools are rendered in front of everything else. In another order the same tools are another
    prefix: system prompt, examples and conversation are all computed again.

    ## Bad
    ```python
    tools = [t for server in servers for t in await server.list_tools()]
    ```

    ## Good
    ```python
    tools = sorted([t for server in servers for t in await server.list_tools()], key=lambda t: t.name)
    ```

    ## When it is wrong
    When the order is a priority that is the same in each call. Built-in tools first and sorted ones
    behind them are fine.
    """

    code = "KV501"
    name = "tool-order-unstable"
    rank = 20
    does = "The order of the tools is not certain"
    advice = "Sort them by name where they are sent."

    def catches(self, request: Request) -> bool:
        return request.tools is not None and bool(request.tools.traits & _ORDER)

    def share(self, request: Request, context: Context) -> float:
        traits = request.tools.traits if request.tools is not None else frozenset()
        if "shuffled" in traits:
            return context.traffic.share("call")
        return context.traffic.processes
