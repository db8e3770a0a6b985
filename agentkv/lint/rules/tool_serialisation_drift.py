"""KV504 tool-serialisation-drift."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Severity
from agentkv.lint.rules._markers import target_of
from agentkv.lint.rules._request import ToolsRule
from agentkv.lint.spot import spots
from agentkv.lint.template import Document, Request

_SCHEMAS = re.compile(r"schema|tool|function", re.IGNORECASE)


class ToolSerialisationDrift(ToolsRule):
    """Tool schemas are dumped in the order in which their keys happened to be inserted.

    ## What it catches
    Tools that are put together as dicts at run time and dumped without a fixed order, names of `$defs`
    that depend on import order.

    ## Why it costs
    The same schema with its keys in another order is another text, in front of everything else.
    Engines that render tools as JSON text (vLLM, SGLang, llama.cpp) see the difference; providers that
    parse JSON first may not.

    ## Bad
    ```python
    tools = json.loads(json.dumps({**base_schema(), **overrides}))
    ```

    ## Good
    ```python
    TOOLS = tuple(tool_schema(f) for f in FUNCTIONS)  # made once, at start
    ```

    ## When it is wrong
    When the dict is put together in the same order each time. For providers that parse JSON it is
    reported at info. Never sort `properties`: arguments are
    written in that order.
    """

    code = "KV504"
    name = "tool-serialisation-drift"
    rank = 30
    does = "Tool schemas are dumped without a fixed order of keys"
    advice = "Make the schemas once, at start."

    def catches(self, request: Request) -> bool:
        return request.tools is not None and "unsorted_json" in request.tools.traits

    def share(self, request: Request, context: Context) -> float:
        return context.traffic.processes

    def worst(self, request: Request, context: Context) -> Severity:
        return "info" if target_of(request, context).parses_json else "warning"

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        yield from super().check(document, context)
        # Schemas that are written into the prompt as text.
        for spot in spots(document, context):
            about = "tools" in spot.traits or _SCHEMAS.search(f"{spot.hole.expr} {spot.hole.name}")
            if (
                "unsorted_json" not in spot.traits
                or not about
                or spot.level in ("build", "turn", "call")
                or (spot.level == "deploy" and (spot.hole.known or "tools" not in spot.traits))
            ):
                continue
            tokens = spot.behind + context.traffic.tool_tokens
            share = context.traffic.processes
            yield replace(
                self.made(
                    spot.hole.slice or spot.template.slice,
                    f"`{spot.hole.name or spot.hole.expr}` dumps schemas in the order of their keys: in "
                    f"another order about {tokens:,} tokens are another text.",
                    lost=tokens * share,
                    share=share,
                    severity=self.severity(tokens * share),
                    slot=spot.slot,
                    request=spot.request,
                    template=spot.template,
                ),
                at=spot.at,
                static_behind=spot.behind,
            )
