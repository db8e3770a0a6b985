"""KV706 padding-in-prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rule import Rule
from agentkv.lint.source import Slice
from agentkv.lint.spot import request_of, spots, static_texts
from agentkv.lint.template import Document

_FILLER = re.compile(
    r"((?:[A-Za-z]{1,12}|[.\u00b7])[ \t]?)\1{59,}|(\b\w{2,12}[ \t])\2{39,}|(\b\w[^\n]{3,38}?[ \t\n])\3{19,}"
)

_REPEATED = re.compile(
    r"""(["'])(?=[^"'\\]*[A-Za-z.])[^"'\\]{1,16}\1 ?\* ?(?:\d{2,}|\(|[a-z_])"""
    r"""|\b\w{1,24} ?\* ?(["'])(?=[^"'\\]*[A-Za-z])[^"'\\]{1,16}\2"""
)
"""A word or letter times a number, in the code of the prompt."""


class PaddingInPrefix(Rule):
    """A prompt is filled up to reach a minimum length.

    ## What it catches
    A word or letter that is repeated dozens of times, `" pad" * 800`, random filler.

    ## Why it costs
    Filler is paid for in each call, and it moves a model's attention. If it is random, or as long as
    what is missing in *this* prompt, it also breaks the prefix that it was meant to make.

    ## Bad
    ```python
    system = RULES + " pad" * (1024 - count_tokens(RULES))
    ```

    ## Good
    ```python
    system = RULES + MORE_EXAMPLES  # real content that is always the same
    ```

    ## When it is wrong
    When the repetition is content (a drawing, a test).
    """

    code = "KV706"
    name = "padding-in-prefix"
    rank = 16

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            for i, j, piece in static_texts(template, context):
                found = _FILLER.search(piece.value)
                if found is None:
                    continue
                where = piece.slice or template.slice
                if piece.slice is not None and len(piece.slice) == len(piece.value):
                    where = Slice(
                        piece.slice.start + found.start(), piece.slice.start + found.end()
                    )
                tokens = context.count(found[0])
                yield Finding(
                    code=self.code,
                    name=self.name,
                    slice=where,
                    message=(
                        f"About {tokens:,} tokens are filler. If the prompt must be longer to be cached, "
                        "give it fixed content that helps."
                    ),
                    severity="warning",
                    tokens_lost=tokens,
                    share=1.0,
                    template=template,
                    request=request_of(template, document),
                    slot=f"{template.name}/padding",
                    at=(i, j),
                )
                break
        for spot in spots(document, context):
            if "padding" in spot.traits or _REPEATED.search(spot.hole.expr[:400]):
                cost = price.of(spot, context)
                yield Finding(
                    code=self.code,
                    name=self.name,
                    slice=spot.hole.slice or spot.template.slice,
                    message=(
                        f"{spot.hole.expr.strip()[:60]} is filler whose length depends on the prompt. If the "
                        "prompt must be longer to be cached, give it fixed content that helps."
                    ),
                    severity="warning",
                    tokens_lost=cost.lost if cost is not None else 0,
                    template=spot.template,
                    request=spot.request,
                    slot=spot.slot,
                    at=spot.at,
                )
