"""KV704 lookback-exceeded."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._markers import markers, target_of
from agentkv.lint.rules._request import RequestRule
from agentkv.lint.template import Document, Part, Template, Text


class LookbackExceeded(RequestRule):
    """More blocks stand between two cache markers than the provider looks back over.

    ## What it catches
    A request with more than 20 blocks between two of its cache markers, or behind the last one.

    ## Why it costs
    From each marker the provider looks back 20 blocks for a prefix that it kept. A turn of an agent
    with many tool calls adds more than that, and the conversation that was kept is not found.

    ## Bad
    ```text
    marker, 24 blocks, marker
    ```

    ## Good
    ```text
    marker, 15 blocks, marker, 9 blocks, marker
    ```

    ## When it is wrong
    Parallel tool calls may count as one position.
    """

    code = "KV704"
    name = "lookback-exceeded"
    rank = 51
    advice = "Set a marker about every 15 blocks."

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for n, request in enumerate(document.requests):
            provider = target_of(request, context)
            template = request.template
            if (
                template is None
                or not provider.explicit
                or not provider.lookback
                or not markers(request)
            ):
                continue
            gap, behind = _gap(template, provider.lookback)
            if gap is None:
                continue
            tokens = sum(context.tokens(p) for part in behind for p in part.pieces)
            yield self.made(
                gap.marker or gap.slice or request.slice,
                f"More than {provider.lookback} blocks stand between this cache marker and the one "
                f"before it, and {provider.title} looks back no further: about {tokens:,} tokens that "
                "were kept may not be found.",
                lost=tokens,
                share=1.0,
                severity="warning",
                slot=f"lookback#{n}",
                request=request,
            )


def _gap(template: Template, most: int) -> tuple[Part | None, list[Part]]:
    """The first marked message (or the last one at all) that is too far from the marker before."""
    since: list[Part] = []
    blocks = 0
    marked = False
    for part in template.parts:
        if part.role == "system" and part.marker is None:
            continue
        since.append(part)
        blocks += _blocks(part)
        if part.marker is not None:
            if blocks > most and marked:
                return part, since
            since, blocks, marked = [], 0, True
    if marked and blocks > most:
        return since[-1], since
    return None, []


def _blocks(part: Part) -> int:
    """Blocks of content: two texts side by side are two, a text with holes in it is one."""
    pairs = zip(part.pieces, part.pieces[1:], strict=False)
    return 1 + sum(isinstance(a, Text) and isinstance(b, Text) for a, b in pairs)
