"""KV702 breakpoint-missing."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._markers import markers, target_of
from agentkv.lint.rules._request import RequestRule
from agentkv.lint.template import Document, Template

MARGIN = 1.15
"""A prefix must be longer than the minimum by this factor where tokens are estimated."""


class BreakpointMissing(RequestRule):
    """A long fixed prefix is sent to a provider that caches only what is marked, without a marker.

    ## What it catches
    A call of Anthropic or Bedrock whose fixed prefix is longer than the model's minimum, without
    `cache_control` or `cachePoint`; and a call of a model that matches at breakpoints only (GPT-5.6
    and later) whose fixed prefix is followed by something that changes.

    ## Why it costs
    Nothing is cached at all: every call pays the full price for the same tokens, ten times that of
    reading them from the cache.

    ## Bad
    ```python
    client.messages.create(model=MODEL, system=LONG_RULES, messages=messages)
    ```

    ## Good
    ```python
    client.messages.create(
        model=MODEL,
        system=[{"type": "text", "text": LONG_RULES, "cache_control": {"type": "ephemeral"}}],
        messages=messages,
    )
    ```

    ## When it is wrong
    When the prompt is sent once only: writing costs a quarter more than not caching. Some frameworks
    add markers themselves.
    """

    code = "KV702"
    name = "breakpoint-missing"
    rank = 50
    advice = "Mark the last block that stays the same."

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for n, request in enumerate(document.requests):
            template = request.template
            provider = target_of(request, context)
            exact = provider.exact(request.model)
            if template is None or not (provider.explicit or exact) or markers(request):
                continue
            tokens = price.prefix(template, context)
            if request.tools is not None:
                tokens += context.traffic.tool_tokens if not template.parts else 0
            least = provider.least(request.model) * (1.0 if context.exact else MARGIN)
            if tokens < max(least, context.min_tokens):
                continue
            if exact and not _varies(template, context):
                continue  # the breakpoint of the newest message covers it
            share = 0.9  # all calls but the first of each lifetime
            yield self.made(
                request.slice,
                f"{tokens:,} tokens at the head of this call never change and no cache marker covers "
                f"them: {provider.title} keeps only what is marked, so every call pays for all of them.",
                lost=tokens * share,
                share=share,
                severity=self.severity(tokens * share),
                slot=f"marker#{n}",
                request=request,
            )


def _varies(template: Template, context: Context) -> bool:
    return any(p.placeholder for p in template.parts) or any(
        context.level(h) not in ("build", "deploy") for _, _, h in template.holes()
    )
