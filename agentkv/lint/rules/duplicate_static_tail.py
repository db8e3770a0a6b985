"""KV214 duplicate-static-tail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rule import Rule
from agentkv.lint.spot import static_texts
from agentkv.lint.template import Document, Template, Text


class DuplicateStaticTail(Rule):
    """The same rules stand in front of the data and behind it.

    ## What it catches
    Lines or paragraphs, `--min-tokens` or more in all, that a prompt has twice, with something that
    changes between them.

    ## Why it costs
    The second copy is behind the data: it is computed in every call, and it is paid for twice.

    ## Bad
    ```jinja
    {{ rules }} ... (200 tokens)
    {{ documents }}
    ... (the same 200 tokens)
    ```

    ## Good
    ```jinja
    ... (200 tokens)
    {{ documents }}
    Remember the rules above: JSON only.
    ```

    ## When it is wrong
    Repeating rules behind long documents is a choice of quality. This is advice, at info.
    """

    code = "KV214"
    name = "duplicate-static-tail"
    certainty = "heuristic"
    rank = 94

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            again = _again(template, context)
            tokens = sum(context.count(line) for line, _ in again)
            if not again or tokens < context.min_tokens:
                continue
            where = again[0][1]
            yield Finding(
                code=self.code,
                name=self.name,
                slice=where.slice or template.slice,
                message=(
                    f"{tokens:,} tokens of rules stand in front of what changes and again behind it. "
                    "A short reminder at the end is cheaper."
                ),
                severity="info",
                tokens_lost=tokens,
                share=1.0,
                template=template,
                slot=f"{template.name}/again",
            )


def _again(template: Template, context: Context) -> list[tuple[str, Text]]:
    """Lines that were there before the first thing that changes, behind it."""
    seen: set[str] = set()
    out: list[tuple[str, Text]] = []
    changing = {
        (i, j) for i, j, h in template.holes() if context.level(h) not in ("build", "deploy")
    }
    first = min(changing, default=None)
    for i, j, text in static_texts(template, context):
        for line in _lines(text.value):
            if first is None or (i, j) < first:
                seen.add(line)
            elif line in seen:
                out.append((line, text))
    return out


def _lines(text: str) -> list[str]:
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return [line for line in lines if len(line.split()) >= 5]
