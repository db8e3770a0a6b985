"""KV705 below-minimum."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._markers import markers, target_of
from agentkv.lint.rules._request import RequestRule
from agentkv.lint.template import Document

MARGIN = 0.85
"""A prefix must be shorter than the minimum by this factor where tokens are estimated."""

LEAST = 256
"""Fewer tokens are an example or a test, more likely than a prompt that somebody means to cache."""


class BelowMinimum(RequestRule):
    """A prefix that is meant to be cached is shorter than what the model caches.

    ## What it catches
    Cache markers or a cache key on a call whose fixed prefix has fewer tokens than the model's
    minimum (512 to 4,096, by model), without tools or a conversation that could make up for it.

    ## Why it costs
    Nothing: that is the point. The provider ignores the marker without a word, so no work on the
    layout of this prompt will show on the bill.

    ## Bad
    ```python
    system=[{"type": "text", "text": SHORT_RULES, "cache_control": {"type": "ephemeral"}}]  # 700 tokens
    ```

    ## Good
    ```python
    system=SHORT_RULES
    ```

    ## When it is wrong
    When what is sent is longer than what the linter sees. Token counts may be estimates; there is a
    margin of 15 %. Where the model is not known it is reported at info.
    """

    code = "KV705"
    name = "below-minimum"
    rank = 49

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for n, request in enumerate(document.requests):
            template = request.template
            keyed = any(s.name == "prompt_cache_key" for s in request.settings)
            if template is None or request.tools is not None or not (markers(request) or keyed):
                continue
            provider = target_of(request, context)
            least = provider.least(request.model)
            # What is filled in may be long: only a prompt whose marked part is all there can be judged.
            marked = [i for i, p in enumerate(template.parts) if p.marker is not None]
            last = marked[-1] if marked else len(template.parts) - 1
            parts = template.parts[: last + 1]
            if price.talks(template) or any(not p.static for p in parts):
                continue
            tokens = sum(context.tokens(p) for part in parts for p in part.pieces)
            if least <= 1 or tokens >= least * (1.0 if context.exact else MARGIN):
                continue
            where = parts[-1].marker or request.slice
            yield self.made(
                where,
                f"The prefix has about {tokens:,} tokens, and {provider.title} caches "
                f"{request.model or 'this model'} from {least:,} on: it is not cached, whatever the layout.",
                lost=0,
                share=0.0,
                severity="warning" if marked and request.model and tokens >= LEAST else "info",
                slot=f"minimum#{n}",
                request=request,
            )
