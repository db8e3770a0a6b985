"""KV209 placeholder-before-static-messages."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.price import ORDER
from agentkv.lint.rule import Rule
from agentkv.lint.rules._hole import percent
from agentkv.lint.spot import request_of
from agentkv.lint.template import Document


class PlaceholderBeforeStaticMessages(Rule):
    """The conversation stands in front of messages that never change.

    ## What it catches
    `MessagesPlaceholder("history")` (or any run of messages from outside) with fixed messages behind
    it: example turns, a fixed assistant message.

    ## Why it costs
    The fixed messages move with every turn of the conversation, so they are computed again each time,
    and no two conversations share them.

    ## Bad
    ```python
    ChatPromptTemplate.from_messages([
        ("system", RULES),
        MessagesPlaceholder("history"),
        ("human", "Where is my parcel?"),
        ("ai", "I look it up with track_parcel ..."),
        ("human", "{input}"),
    ])
    ```

    ## Good
    ```python
    ChatPromptTemplate.from_messages([
        ("system", RULES),
        ("human", "Where is my parcel?"),
        ("ai", "I look it up with track_parcel ..."),
        MessagesPlaceholder("history"),
        ("human", "{input}"),
    ])
    ```

    ## When it is wrong
    When a fixed closing instruction stands last on purpose. One of less than `--min-tokens` is not
    reported.
    """

    code = "KV209"
    name = "placeholder-before-static-messages"
    rank = 40

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            first = next((i for i, p in enumerate(template.parts) if p.placeholder), None)
            if first is None:
                continue
            fixed = [
                i
                for i, p in enumerate(template.parts)
                if i > first and p.static and p.role != "system"
            ]
            tokens = sum(context.tokens(p) for i in fixed for p in template.parts[i].pieces)
            if tokens < max(context.min_tokens, context.target.granularity):
                continue
            # What is last and alone closes the prompt on purpose, more often than not.
            closing = fixed == [len(template.parts) - 1]
            share = context.traffic.share("turn")
            part = template.parts[first]
            before, after = price.bars(template, (first, 0), context)
            name = next((getattr(p, "name", "") for p in part.pieces), "") or "the conversation"
            yield Finding(
                code=self.code,
                name=self.name,
                slice=part.slice or template.slice,
                message=(
                    f"`{name}` precedes {tokens:,} tokens of messages that never change; "
                    f"{percent(share)}. Put fixed messages in front of the conversation."
                ),
                severity="info" if closing else ORDER.severity(tokens * share, "warning"),
                tokens_lost=round(tokens * share),
                static_behind=tokens,
                share=share,
                template=template,
                request=request_of(template, document),
                before=before,
                after=after,
                also=tuple(
                    (s, "a fixed message")
                    for i in fixed
                    if (s := template.parts[i].slice) is not None
                )[:8],
                slot=f"{template.name}/placeholder#{first}",
                at=(first, 0),
            )
