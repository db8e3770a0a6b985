"""KV704 lookback-exceeded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rules._markers import markers, target_of
from agentkv.lint.rules._request import RequestRule
from agentkv.lint.template import Document, Part, Template


class LookbackExceeded(RequestRule):
    """More blocks stand between two cache markers than the provider looks back over.

    ## What it catches
    A request with more than 20 blocks between two of its cache markers, or behind the last one.
    Blocks are counted, not messages: one message with 24 tool results is 24 blocks.

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
            gap = _gap(template, provider.lookback)
            if gap is None:
                continue
            tokens = sum(context.tokens(p) for part in gap.parts for p in part.pieces)
            last = gap.parts[-1]
            between = (
                f"{gap.blocks} blocks stand between this cache marker and the one before it"
                if gap.marked
                else f"{gap.blocks} blocks stand behind the last cache marker"
            )
            yield self.made(
                last.marker or last.slice or request.slice,
                f"{between}, and {provider.title} looks back over {provider.lookback}: about "
                f"{tokens:,} tokens that were kept may not be found.",
                lost=tokens,
                share=1.0,
                severity="warning",
                slot=f"lookback#{n}",
                request=request,
            )


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages behind one marker, up to the next marker or the end."""

    parts: list[Part]
    blocks: int
    marked: bool


def _gap(template: Template, most: int) -> Gap | None:
    """The first run of more than `most` blocks between two markers, or behind the last one."""
    since: list[Part] = []
    blocks, marked = 0, False
    for part in template.parts:
        places = _marked(part)
        if part.role == "system" and not places:
            continue
        since.append(part)
        count = part.blocks
        done = 0
        for place in places:
            blocks += place + 1 - done
            if blocks > most and marked:
                return Gap(since, blocks, True)
            since, blocks, marked, done = [part], 0, True, place + 1
        blocks += count - done
        if places and done == count:
            since = []
    return Gap(since, blocks, False) if marked and blocks > most and since else None


def _marked(part: Part) -> tuple[int, ...]:
    if part.marker is None:
        return ()
    return part.marked or (part.blocks - 1,)
