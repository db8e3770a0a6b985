"""KV310 whitespace-drift."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rule import Rule
from agentkv.lint.source import Slice
from agentkv.lint.spot import request_of, spots, static_texts
from agentkv.lint.template import Document, Template, Text

_BLANKS = re.compile(r"\S([ \t]+)\r?\n")


class WhitespaceDrift(Rule):
    """White space in a prompt depends on who saved the file, or on what is filled in.

    ## What it catches
    A text with both kinds of line ends, CRLF and LF; a template that is filled in *before* `dedent`,
    so that a value of several lines decides the indentation of everything else. At info: lines that
    end in blanks.

    ## Why it costs
    White space is tokens. A prompt that was checked out with other line ends, or whose indentation
    depends on a value, says the same and shares nothing with the others.

    ## Bad
    ```python
    prompt = textwrap.dedent(f\"\"\"
        Rules: ...
        {notes}
    \"\"\")
    ```

    ## Good
    ```python
    PROMPT = textwrap.dedent(\"\"\"
        Rules: ...
        {notes}
    \"\"\")
    prompt = PROMPT.format(notes=notes)
    ```

    ## When it is wrong
    When the blanks are Markdown's (two at the end of a line: not reported). When the line ends are part of what the prompt shows (a protocol, a file of another system).
    """

    code = "KV310"
    name = "whitespace-drift"
    rank = 85

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            mixed = _mixed(template, context)
            if mixed is not None:
                yield self._finding(
                    document,
                    template,
                    context,
                    mixed.slice or template.slice,
                    "lines",
                    "This text has both CRLF and LF line ends, which editors and checkouts change.",
                )
            elif (blank := _blank(template, context)) is not None:
                yield replace(
                    self._finding(
                        document,
                        template,
                        context,
                        blank,
                        "blanks",
                        "Lines end in blanks that nobody sees, and that editors take away.",
                    ),
                    severity="info",
                )
        for spot in spots(document, context):
            if "dedented" in spot.traits and spot.level not in ("build", "deploy"):
                # About the whole text: what stands in it may have a finding of its own.
                yield self._finding(
                    document,
                    spot.template,
                    context,
                    spot.template.slice,
                    "dedent",
                    f"`{spot.hole.name or spot.hole.expr}` is filled in before dedent(): a value of "
                    "several lines changes the indentation of the static text. Dedent first.",
                )

    def _finding(
        self,
        document: Document,
        template: Template,
        context: Context,
        where: Slice,
        kind: str,
        message: str,
        at: tuple[int, int] | None = None,
    ) -> Finding:
        tokens = price.static(template, context)
        worth = tokens >= context.min_tokens
        return Finding(
            code=self.code,
            name=self.name,
            slice=where,
            message=f"{message} {tokens:,} static tokens depend on it.",
            severity="warning" if worth else "info",
            tokens_lost=0,
            static_behind=tokens,
            template=template,
            request=request_of(template, document),
            slot=f"{template.name}/{kind}",
            at=at,
        )


def _blank(template: Template, context: Context) -> Slice | None:
    """Blanks at the first line's end that has some, but for the two of Markdown's line break."""
    for _, _, text in static_texts(template, context):
        for found in _BLANKS.finditer(text.value):
            if found[1] == "  " or text.slice is None:
                continue
            if len(text.slice) != len(text.value):
                return text.slice
            start = text.slice.start
            return Slice(start + found.start(1), start + found.end(1))
    return None


def _mixed(template: Template, context: Context) -> Text | None:
    """The first text in which the line end is not that of the lines before."""
    crlf = lf = False
    for _, _, text in static_texts(template, context):
        windows = text.value.count("\r\n")
        crlf = crlf or windows > 0
        lf = lf or text.value.count("\n") > windows
        if crlf and lf:
            return text
    return None
